//! Plain HTTP where HTTPS is spoken: said in the client's own words, so that a wrong `http://` is seen at once.

use std::io;

use interlock_answers::{AnswerError, ErrorCode};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::error::PROBLEM_JSON;

/// How much of a request is read before it is refused: a connection that is closed with unread bytes loses the answer.
const HEAD_BYTES: usize = 8 * 1_024;

/// Answers that HTTPS is needed. Nothing is sent on to HTTPS: a token that came in plain text is known to everything on the way.
pub(super) async fn refuse(stream: &mut TcpStream) -> io::Result<()> {
    let mut head = vec![0; HEAD_BYTES];
    let _read = stream.read(&mut head).await?;
    let problem = AnswerError {
        code: ErrorCode::TlsNeeded,
        message: "this address speaks HTTPS, and the request came as plain HTTP".to_owned(),
        hint: "Write `https://`; a token that was sent is known to whatever stood on the way."
            .to_owned(),
    };
    let body = serde_json::to_string(&problem.into_problem()).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: {PROBLEM_JSON}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}
