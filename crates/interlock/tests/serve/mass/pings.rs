//! Pings by HTTP over a few connections that stay open, each with the times around it.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use interlock_wait::{BOUND, ThreadWithin as _};
use jiff::Timestamp;

const CONNECTIONS: usize = 8;
/// All of them together, however slow the machine is.
const ALL_IN: Duration = Duration::from_mins(5);

/// One ping.
#[derive(Debug, Clone)]
pub(crate) struct Ping {
    pub(crate) pipeline: String,
    pub(crate) sent: Timestamp,
    pub(crate) answered: Timestamp,
    pub(crate) status: String,
}

/// Pings each pipeline once, as fast as it goes.
pub(crate) fn ping_all(address: SocketAddr, names: &[String]) -> Vec<Ping> {
    let share = names.len().div_ceil(CONNECTIONS).max(1);
    let threads: Vec<_> = names
        .chunks(share)
        .map(|names| {
            let names = names.to_vec();
            thread::spawn(move || ping_each(address, &names))
        })
        .collect();
    threads.into_iter().flat_map(|it| it.join_within("the pings", ALL_IN).unwrap()).collect()
}

fn ping_each(address: SocketAddr, names: &[String]) -> Vec<Ping> {
    let stream = TcpStream::connect_timeout(&address, BOUND).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    let ping = |name: &String| {
        let sent = Timestamp::now();
        let text = format!("GET /ping/{name} HTTP/1.1\r\nhost: {address}\r\n\r\n");
        writer.write_all(text.as_bytes()).unwrap();
        let status = status(&mut reader);
        Ping { pipeline: name.clone(), sent, answered: Timestamp::now(), status }
    };
    names.iter().map(ping).collect()
}

/// The status of the next answer, whose body is read and left aside.
fn status(reader: &mut BufReader<TcpStream>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        // Bounded: the stream's read timeout.
        assert!(reader.read_line(&mut head).unwrap() > 0, "the connection ended: {head}");
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    // Bounded: the stream's read timeout.
    reader.read_exact(&mut body).unwrap();
    head.split(' ').nth(1).unwrap_or_default().to_owned()
}
