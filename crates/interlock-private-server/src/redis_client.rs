//! Asks a Redis server something, as `redis-cli` would, but never waits without end and starts no process for it.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

/// How long a server may take to answer: longer than any `WAIT` that a test sends.
const ANSWERS_IN: Duration = Duration::from_secs(70);

/// A connection to a server on this machine.
#[derive(Debug)]
pub struct RedisClient {
    stream: BufReader<TcpStream>,
}

impl RedisClient {
    /// Connects to a port of the loopback.
    pub fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), ANSWERS_IN)?;
        stream.set_read_timeout(Some(ANSWERS_IN))?;
        stream.set_write_timeout(Some(ANSWERS_IN))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends one command. The answer is text as `redis-cli` prints it into a pipe: an error is its message, nothing is an empty
    /// line, a list has a line for each item.
    pub fn ask(&mut self, words: &[&str]) -> io::Result<String> {
        let count = format!("*{}\r\n", words.len());
        let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        let request: String = std::iter::once(count).chain(words).collect();
        self.stream.get_mut().write_all(request.as_bytes())?;
        Ok(self.answer()?.trim().to_owned())
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        // Bounded: the stream has a read timeout.
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (kind, rest) = line.trim_end().split_at(1);
        match (kind, rest.parse::<usize>()) {
            ("$", Ok(length)) => {
                let mut bytes = vec![0; length + 2];
                // Bounded: the stream has a read timeout.
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(length);
                String::from_utf8(bytes).map_err(io::Error::other)
            }
            ("*", Ok(count)) => {
                let items: io::Result<Vec<String>> = (0..count).map(|_| self.answer()).collect();
                Ok(items?.join("\n"))
            }
            // A negative length says that there is nothing.
            ("$" | "*", Err(_)) => Ok(String::new()),
            _ => Ok(rest.to_owned()),
        }
    }
}

/// What a server answers to one command; panics if it does not.
pub fn redis_cli(port: u16, words: &[&str]) -> String {
    let said = RedisClient::connect(port).and_then(|mut client| client.ask(words));
    said.unwrap_or_else(|error| {
        panic!("Redis on port {port} did not answer {words:?} within {ANSWERS_IN:?}: {error}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PrivateRedis;

    #[test]
    fn answers_read_as_redis_cli_prints_them() {
        let server = PrivateRedis::start();
        let mut client = RedisClient::connect(server.port()).unwrap();
        let mut ask = |words: &[&str]| client.ask(words).unwrap();
        assert_eq!(ask(&["SET", "key", "two words"]), "OK");
        assert_eq!(ask(&["GET", "key"]), "two words");
        assert_eq!(ask(&["GET", "absent"]), "");
        assert_eq!(ask(&["EXISTS", "key"]), "1");
        assert_eq!(ask(&["MGET", "key", "absent", "key"]), "two words\n\ntwo words");
        assert!(ask(&["INCR", "key"]).starts_with("ERR value"));
        assert_eq!(ask(&["KEYS", "nothing*"]), "");
        assert_eq!(redis_cli(server.port(), &["DBSIZE"]), "1");
    }
}
