//! Many readers of the stream while much happens, and a server that is killed and started again under them: each reader has each event
//! once, in order.
//!
//! A sample here; `cargo xtask soak --stream` has a thousand readers for ten minutes (`INTERLOCK_STREAM_READERS`,
//! `INTERLOCK_STREAM_SECONDS`).

use std::{
    env, fs, io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use interlock_wait::BOUND;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::{
    Daemon,
    pings::curl,
    project::{Project, kill},
};

const READERS: usize = 40;
const SECONDS: u64 = 8;
/// Each is a run of its own, with the events of its slot and its job.
const PINGS_PER_SECOND: u64 = 40;
/// How long the last event may take to come to the last reader.
const AT_THE_END: Duration = Duration::from_mins(2);

const WATCHED: &str =
    "name: far\nschedules: [{name: s, every: 1h, from: last}]\ntrigger: {type: external}\n";

/// What is asked for, or the sample.
fn asked(name: &str, sample: u64) -> u64 {
    env::var(name).ok().map_or(sample, |text| text.parse().unwrap())
}

/// One that reads, and what it has read.
#[derive(Default)]
struct StreamReader {
    numbers: Vec<u64>,
    /// How often it had to come back.
    reconnects: u64,
}

impl StreamReader {
    /// Reads until it has had the last event, coming back after each break behind the last that came.
    async fn read(mut self, address: SocketAddr, last: Arc<AtomicU64>) -> Self {
        // Bounded: the test waits two minutes for each reader, and ends them all.
        while !self.has(&last) {
            // A break is ordinary here: the server is killed, or begins.
            if self.listen(address, &last).await.is_err() || !self.has(&last) {
                self.reconnects += 1;
                sleep(Duration::from_millis(100)).await;
            }
        }
        self
    }

    fn has(&self, last: &AtomicU64) -> bool {
        self.numbers.last().is_some_and(|number| *number >= last.load(Ordering::SeqCst))
    }

    async fn listen(&mut self, address: SocketAddr, last: &AtomicU64) -> io::Result<()> {
        let mut stream = TcpStream::connect(address).await?;
        let after = self.numbers.last().copied().unwrap_or(0);
        let request = format!(
            "GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: {after}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        // Bounded: each line is waited for so long, below.
        let mut lines = BufReader::new(stream).lines();
        let (mut id, mut kind) = (0, String::new());
        // Bounded: a stream that is alive has a comment every 15 s.
        while let Some(line) = timeout(BOUND, lines.next_line()).await?? {
            if let Some(text) = line.strip_prefix("id: ") {
                id = text.parse().map_err(io::Error::other)?;
            } else if let Some(text) = line.strip_prefix("event: ") {
                text.clone_into(&mut kind);
            } else if line.starts_with("data: ") && kind != "resume" {
                self.numbers.push(id);
                if self.has(last) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Reports until it is told to stop; says how many were taken. What a killed server did not take is lost, as it would be with `curl`.
async fn report(address: SocketAddr, stop: Arc<AtomicBool>) -> u64 {
    let pause = Duration::from_micros(1_000_000 / PINGS_PER_SECOND);
    let mut taken = 0;
    // Bounded: the test says when to stop.
    while !stop.load(Ordering::SeqCst) {
        let ping = async {
            let mut stream = TcpStream::connect(address).await?;
            let request = "GET /ping/far HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            stream.write_all(request.as_bytes()).await?;
            let mut answer = Vec::new();
            // Bounded: the whole ping is, below.
            stream.read_to_end(&mut answer).await?;
            io::Result::Ok(answer.starts_with(b"HTTP/1.1 200"))
        };
        if matches!(timeout(BOUND, ping).await, Ok(Ok(true))) {
            taken += 1;
        }
        sleep(pause).await;
    }
    taken
}

fn address_of(project: &Project) -> SocketAddr {
    project.until("it listens", || {
        let text = fs::read_to_string(project.folder().join("http.json")).ok()?;
        serde_json::from_str::<Value>(&text).ok()?["address"].as_str()?.parse().ok()
    })
}

/// The numbers of all events that are recorded, as they are listed; none while the server does not answer.
fn recorded(base: &str) -> Option<Vec<u64>> {
    let (mut numbers, mut after) = (Vec::new(), "0".to_owned());
    // Bounded: each page has a thousand more, and the last says that it is.
    loop {
        let url = format!("{base}/api/v1/events?limit=1000&after={after}");
        let page: Value = serde_json::from_str(&curl(&["-f", &url]).stdout).ok()?;
        let items = page["items"].as_array()?;
        numbers.extend(items.iter().map(|event| event["number"].as_u64().unwrap()));
        match page["next"].as_str() {
            Some(next) if !items.is_empty() => next.clone_into(&mut after),
            _ => return Some(numbers),
        }
    }
}

#[test]
fn each_reader_of_the_stream_has_each_event_once_in_order_while_the_server_is_killed() {
    let readers = asked("INTERLOCK_STREAM_READERS", READERS as u64);
    let length = Duration::from_secs(asked("INTERLOCK_STREAM_SECONDS", SECONDS));
    let project = Project::new(&[("far", WATCHED)]);
    let config = project.path().join("interlock.yaml");
    fs::write(&config, "server: {addr: '127.0.0.1:0'}\n").unwrap();
    let mut daemon = Daemon::start(project.path());
    let address = address_of(&project);
    // The next process has the same address.
    fs::write(&config, format!("server: {{addr: '{address}'}}\n")).unwrap();
    let base = format!("http://{address}");
    project.until("the pipeline is known", || {
        (curl(&["-f", &format!("{base}/ping/far")]).code == 0).then_some(())
    });

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let last = Arc::new(AtomicU64::new(u64::MAX));
    let stop = Arc::new(AtomicBool::new(false));
    let (began, mut kills) = (Instant::now(), 0);
    let (read, taken) = runtime.block_on(async {
        let reading: Vec<_> = (0..readers)
            .map(|_| tokio::spawn(StreamReader::default().read(address, Arc::clone(&last))))
            .collect();
        let reporting = tokio::spawn(report(address, Arc::clone(&stop)));
        // Killed in the middle of each half minute, and once in a sample.
        let half = length.min(Duration::from_secs(30)) / 2;
        while began.elapsed() < length {
            sleep(half).await;
            assert!(kill(daemon.0.id()));
            drop(std::mem::replace(&mut daemon, Daemon::start(project.path())));
            kills += 1;
            sleep(half).await;
        }
        stop.store(true, Ordering::SeqCst);
        let taken = reporting.await.unwrap();
        let numbers = tokio::task::spawn_blocking({
            let base = base.clone();
            move || settled(&base)
        });
        let numbers = numbers.await.unwrap();
        last.store(*numbers.last().unwrap(), Ordering::SeqCst);
        // One more, so that those that had the last one look again.
        let _woken = tokio::task::spawn_blocking({
            let url = format!("{base}/ping/far");
            move || curl(&["-f", &url])
        });
        let mut read = Vec::new();
        for reader in reading {
            let reader = timeout(AT_THE_END, reader).await;
            read.push(reader.expect("a reader has the last event within two minutes").unwrap());
        }
        (read, taken)
    });
    let end = last.load(Ordering::SeqCst);
    let expected: Vec<_> =
        recorded(&base).unwrap().into_iter().filter(|number| *number <= end).collect();
    let reconnects: u64 = read.iter().map(|reader| reader.reconnects).sum();
    println!(
        "{readers} readers, {} events of {taken} reports in {:?}, {kills} kills, {reconnects} reconnects",
        expected.len(),
        began.elapsed()
    );
    assert!(kills > 0 && reconnects >= readers * kills, "each was cut off each time");
    // How many there were is printed: a machine that is busy with other things takes fewer.
    assert!(taken >= length.as_secs(), "{taken} reports");
    for reader in &read {
        let had: Vec<_> = reader.numbers.iter().copied().filter(|number| *number <= end).collect();
        assert_eq!(had, expected, "each event once, in order");
    }
}

/// The numbers of all events, once no more come by themselves.
fn settled(base: &str) -> Vec<u64> {
    let mut before = recorded(base);
    interlock_wait::wait_for("the last report is applied", BOUND, || {
        std::thread::sleep(Duration::from_secs(1));
        let now = recorded(base);
        let is_still = now == before && now.as_ref().is_some_and(|now| !now.is_empty());
        before = now;
        is_still.then_some(())
    });
    before.unwrap()
}
