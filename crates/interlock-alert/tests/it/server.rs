//! A stand-in receiver: remembers what it was sent and answers what it is told to.

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// One request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// `POST /hook HTTP/1.1`
    pub(crate) line: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// What it does with a request: an answer's head after the version, or silence.
#[derive(Clone, Copy)]
pub(crate) enum Does {
    Answer(&'static str),
    /// A head and a body.
    Say(&'static str, &'static str),
    Hang,
    HangUp,
}

pub(crate) struct Server {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// Treats every request in the same way.
    pub(crate) async fn new(does: Does) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook?token=hush", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let remembered = Arc::clone(&asked);
        tokio::spawn(async move {
            // Bounded: nothing awaits this task; it ends with the test's runtime.
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, does, Arc::clone(&remembered)));
            }
        });
        Self { url, asked }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, does: Does, remembered: Arc<Mutex<Vec<Asked>>>) {
    let Some(asked) = read(&mut stream).await else { return };
    remembered.lock().unwrap().push(asked);
    match does {
        Does::HangUp => {}
        Does::Hang => std::future::pending().await,
        Does::Answer(head) => answer(&mut stream, head, "").await,
        Does::Say(head, body) => answer(&mut stream, head, body).await,
    }
}

async fn answer(stream: &mut TcpStream, head: &str, body: &str) {
    let length = body.len();
    let text =
        format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await.unwrap();
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let (line, rest) = head.split_once("\r\n").unwrap();
    let headers: Vec<(String, String)> = rest
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, text)| text.parse().unwrap())];
    // Bounded: nothing awaits this task; it ends with the test's runtime.
    stream.read_exact(&mut body).await.ok()?;
    Some(Asked { line: line.to_owned(), headers, body: String::from_utf8(body).unwrap() })
}
