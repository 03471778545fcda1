//! A stand-in server: remembers what it was asked and answers what it is told to.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// One request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// An answer: status and body. Status 0 means: say nothing and hang up; 1: never answer.
pub(crate) type Answer = (u16, String);

pub(crate) struct Server {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// Answers by a function of the request and of how many came before it.
    pub(crate) async fn new(
        answer: impl Fn(&Asked, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (answer, remembered) = (Arc::new(answer), Arc::clone(&asked));
        tokio::spawn(async move {
            // Bounded: nothing awaits this task; it ends with the test's runtime.
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&answer), Arc::clone(&remembered)));
            }
        });
        Self { url, asked }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: Arc<impl Fn(&Asked, usize) -> Answer>,
    remembered: Arc<Mutex<Vec<Asked>>>,
) {
    while let Some(asked) = read(&mut stream).await {
        let (status, body) = {
            let mut remembered = remembered.lock().unwrap();
            let answer = answer(&asked, remembered.len());
            remembered.push(asked);
            answer
        };
        match status {
            0 => return,
            1 => std::future::pending().await,
            _ => {}
        }
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
        if stream.write_all((head + &body).as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut text = Vec::new();
    loop {
        if let Some(end) = text.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(text[..end].to_vec()).unwrap();
            let mut asked = head_of(&head);
            let length = asked.header("content-length").map_or(0, |text| text.parse().unwrap());
            let mut body = text[end + 4..].to_vec();
            let had = body.len();
            body.resize(length, 0);
            // Bounded: nothing awaits this task; it ends with the test's runtime.
            stream.read_exact(&mut body[had..]).await.ok()?;
            asked.body = String::from_utf8(body).unwrap();
            return Some(asked);
        }
        let mut byte = [0];
        // Bounded: nothing awaits this task; it ends with the test's runtime.
        stream.read_exact(&mut byte).await.ok()?;
        text.push(byte[0]);
    }
}

fn head_of(head: &str) -> Asked {
    let mut lines = head.lines();
    let mut words = lines.next().unwrap().split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let headers = lines.filter_map(|line| line.split_once(": "));
    Asked {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: headers.map(|(n, v)| (n.to_ascii_lowercase(), v.to_owned())).collect(),
        body: String::new(),
    }
}
