//! A local receiver of alerts that answers at once, keeps connections open, and remembers each alert with its key and its time; and a
//! job behind a url that always fails.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use jiff::Timestamp;
use serde_json::Value;

/// One message that reached a channel.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) alert_type: String,
    /// `open`, `acknowledged`, `resolved`; empty for what is no incident.
    pub(crate) state: String,
    pub(crate) pipeline: String,
    pub(crate) text: String,
    /// How many alerts of each type it stands for.
    pub(crate) types: BTreeMap<String, u64>,
    /// When it came; nothing of a file, which says only that it did.
    pub(crate) at: Option<Timestamp>,
}

impl Message {
    /// The message that a JSON body is.
    fn read(body: &Value, at: Option<Timestamp>) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let alert_type = text(&body["alertType"]);
        let counted = body["details"]["types"].as_object().map(|types| {
            let count = |(name, count): (&String, &Value)| (name.clone(), count.as_u64().unwrap());
            types.iter().map(count).collect()
        });
        Self {
            types: counted.unwrap_or_else(|| BTreeMap::from([(alert_type.clone(), 1)])),
            state: text(&body["details"]["state"]),
            pipeline: text(&body["pipelineId"]),
            text: text(&body["message"]),
            alert_type,
            at,
        }
    }
}

/// What came so far.
#[derive(Debug, Default)]
struct Received {
    /// By path: `/program`, `/people`.
    messages: BTreeMap<String, Vec<Message>>,
    /// How often a job was asked for, by its pipeline.
    jobs: BTreeMap<String, u64>,
}

/// Listens until the test's process ends.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) url: String,
    received: Arc<Mutex<Received>>,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received: Arc<Mutex<Received>> = Arc::default();
        let shared = Arc::clone(&received);
        thread::spawn(move || {
            // Bounded: no test waits for this thread; it ends with the test's process.
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                thread::spawn(move || answer(&stream, &shared));
            }
        });
        Self { url, received }
    }

    /// What came on a path, oldest first.
    pub(crate) fn messages(&self, path: &str) -> Vec<Message> {
        lock(&self.received).messages.get(path).cloned().unwrap_or_default()
    }

    /// How many came on a path.
    pub(crate) fn count(&self, path: &str) -> usize {
        lock(&self.received).messages.get(path).map_or(0, Vec::len)
    }

    /// How often the job of each pipeline was asked for.
    pub(crate) fn jobs(&self) -> BTreeMap<String, u64> {
        lock(&self.received).jobs.clone()
    }
}

fn lock(received: &Mutex<Received>) -> std::sync::MutexGuard<'_, Received> {
    received.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers one request after the other, until the other side goes.
fn answer(stream: &TcpStream, received: &Mutex<Received>) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    // Bounded: no test waits for this thread; it ends with its connection.
    while let Some((path, body)) = request(&mut reader) {
        let status = if let Some(pipeline) = path.strip_prefix("/job/") {
            *lock(received).jobs.entry(pipeline.to_owned()).or_default() += 1;
            "500 Internal Server Error"
        } else {
            let value: Value = serde_json::from_slice(&body).unwrap();
            let message = Message::read(&value, Some(Timestamp::now()));
            lock(received).messages.entry(path).or_default().push(message);
            "200 OK"
        };
        let text = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        if writer.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

/// The path and the body of the next request; nothing when there is none.
fn request(reader: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let mut first = String::new();
    // Bounded: no test waits for this thread; it ends with its connection.
    reader.read_line(&mut first).ok().filter(|length| *length > 0)?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    let mut line = String::new();
    // Bounded: no test waits for this thread; it ends with its connection.
    while reader.read_line(&mut line).ok()? > 2 {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    // Bounded: no test waits for this thread; it ends with its connection.
    reader.read_exact(&mut body).ok()?;
    Some((path, body))
}

/// What is in the file of a file channel. Half a line at its end is not there yet.
pub(crate) fn in_file(path: &Path) -> Vec<Message> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.map(|line| Message::read(&line, None)).collect()
}
