//! A key on Redis as a heartbeat: for whoever judges from another machine.
//!
//! Nobody's clock is compared with anybody else's: the server's own says how old a sign is. A key of ours is written with a
//! time to live that its value names, and what is left of that is its age. Of a key that some other program writes only a change
//! says anything: what was seen is kept beside it (`KEY:seen`), in the same way, so that every checker knows it.

use std::{fmt, time::Duration};

use interlock_liveness::{Carrier, Sign, heartbeat::Fresh};
use redis::{Client, Connection, RedisResult, cmd};

/// Names a key that `serve` is to write, in its environment.
pub(crate) const VARIABLE: &str = "INTERLOCK_HEARTBEAT_REDIS";
/// What a value of ours begins with.
const MAGIC: &str = "ILKBEAT1";
/// How long a key outlives whoever wrote it.
const KEPT: Duration = Duration::from_hours(24);
/// How long is remembered since when a key of somebody else's has not changed. Longer than anybody asks for: what is forgotten would look
/// as if it had just changed.
const SEEN_FOR: Duration = Duration::from_hours(24 * 3_650);
/// How long the server may take for anything.
const PATIENCE: Duration = Duration::from_secs(2);
/// So much of a value is looked at.
const LOOKED_AT: usize = 4_096;

/// A key on a server.
pub(crate) struct Key {
    client: Client,
    name: String,
    /// Where it is, for people: no password.
    shown: String,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.shown).finish()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Key {
    /// Reads `redis://[USER:PASSWORD@]HOST[:PORT]/[DATABASE/]KEY`.
    pub(crate) fn parse(address: &str) -> Result<Self, String> {
        let form = "a key is named as redis://[USER:PASSWORD@]HOST[:PORT]/[DATABASE/]KEY";
        if address.starts_with("rediss://") {
            return Err(format!(
                "a heartbeat speaks no TLS to Redis, so there is no rediss://; {form}"
            ));
        }
        let rest = address.strip_prefix("redis://").ok_or(form)?;
        let (server, path) = rest.split_once('/').ok_or(form)?;
        let (database, name) = match path.split_once('/') {
            Some((number, name)) if number.parse::<u16>().is_ok() => (number, name),
            Some(_) | None => ("0", path),
        };
        let host = server.rsplit_once('@').map_or(server, |(_, host)| host);
        if name.is_empty() || host.is_empty() {
            return Err(form.to_owned());
        }
        let client = Client::open(format!("redis://{server}/{database}"));
        // The error of the client may quote the address, and with it the password.
        let client =
            client.map_err(|_quotes_it| format!("`{host}` is no address of a server; {form}"))?;
        let shown = format!("redis://{host}/{path}");
        Ok(Self { client, name: name.to_owned(), shown })
    }

    fn connect(&self) -> RedisResult<Connection> {
        let connection = self.client.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        Ok(connection)
    }

    /// Looks whether it has had a sign of life within a time.
    pub(crate) fn check(&self, max_age: Duration) -> RedisResult<Fresh> {
        let mut connection = self.connect()?;
        let value: Vec<u8> =
            cmd("GETRANGE").arg(&self.name).arg(0).arg(LOOKED_AT - 1).query(&mut connection)?;
        let left: i64 = cmd("PTTL").arg(&self.name).query(&mut connection)?;
        if value.is_empty() || left == GONE {
            // What comes in its place is new, and nothing of it is to stay for years.
            cmd("DEL").arg(self.seen()).query::<()>(&mut connection)?;
            return Ok(Fresh::Missing);
        }
        let age = match kept_for(&value).and_then(|kept| age(kept, left)) {
            Some(age) => Some(age),
            None => self.age_by_change(&mut connection, &value)?,
        };
        Ok(age.map_or(Fresh::FirstLook, |age| Fresh::of(age, max_age)))
    }

    /// How long ago the value was first seen to be what it is; nothing, if nobody has looked before.
    fn age_by_change(
        &self,
        connection: &mut Connection,
        value: &[u8],
    ) -> RedisResult<Option<Duration>> {
        let seen = self.seen();
        let before: Option<Vec<u8>> = cmd("GET").arg(&seen).query(connection)?;
        let left: i64 = cmd("PTTL").arg(&seen).query(connection)?;
        if let Some(age) = age(SEEN_FOR, left).filter(|_| before.as_deref() == Some(value)) {
            return Ok(Some(age));
        }
        set(connection, &seen, value, SEEN_FOR)?;
        // Something else was there at the last look: a change, since then.
        Ok(before.map(|_| Duration::ZERO))
    }

    /// Where what was seen is kept.
    fn seen(&self) -> String {
        format!("{}:seen", self.name)
    }
}

/// What `PTTL` says of a key that is not there.
const GONE: i64 = -2;

fn set(connection: &mut Connection, key: &str, value: &[u8], kept: Duration) -> RedisResult<()> {
    cmd("SET").arg(key).arg(value).arg("PX").arg(millis(kept)).query(connection)
}

/// How long a value of ours is kept, as it says itself.
fn kept_for(value: &[u8]) -> Option<Duration> {
    let mut words = str::from_utf8(value).ok()?.split(' ');
    let is_ours = words.next() == Some(MAGIC);
    words.next()?.parse().ok().map(Duration::from_millis).filter(|_| is_ours)
}

/// What is gone of the time that a key is kept; nothing, if it has no such time, or another.
fn age(kept: Duration, left: i64) -> Option<Duration> {
    kept.checked_sub(Duration::from_millis(u64::try_from(left).ok()?))
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// Heartbeats into a key. A server that is away loses beats, and nobody dies of it.
#[derive(Debug)]
pub(crate) struct Beat {
    key: Key,
    connection: Connected,
    sequence: u64,
    is_away: bool,
}

/// The way to the server, made again when it breaks.
struct Connected(Option<Connection>);

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connected").field(&self.0.is_some()).finish()
    }
}

impl Beat {
    pub(crate) fn into_key(key: Key) -> Self {
        Self { key, connection: Connected(None), sequence: 0, is_away: false }
    }

    fn beat(&mut self) -> RedisResult<()> {
        self.sequence += 1;
        let connection = match &mut self.connection.0 {
            Some(connection) => connection,
            none => none.insert(self.key.connect()?),
        };
        let (kept, pid) = (millis(KEPT), std::process::id());
        let value = format!("{MAGIC} {kept} {} {pid}", self.sequence);
        set(connection, &self.key.name, value.as_bytes(), KEPT)
    }
}

impl Carrier for Beat {
    fn carry(&mut self, sign: &Sign) {
        if *sign != Sign::Alive {
            return;
        }
        let beat = self.beat();
        let was_away = std::mem::replace(&mut self.is_away, beat.is_err());
        if let Err(error) = beat {
            self.connection.0 = None;
            if !was_away {
                tracing::warn!(%error, key = %self.key, "heartbeats do not arrive");
            }
        } else if was_away {
            tracing::info!(key = %self.key, "heartbeats arrive again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_named_with_or_without_a_database_and_its_password_is_not_shown() {
        let read = |address: &str| {
            let key = Key::parse(address)?;
            let database = key.client.get_connection_info().redis_settings().db();
            Ok::<_, String>((key.name.clone(), database, key.to_string()))
        };
        let found = |name: &str, database: i64, shown: &str| {
            Ok((name.to_owned(), database, shown.to_owned()))
        };
        assert_eq!(read("redis://h/beat"), found("beat", 0, "redis://h/beat"));
        assert_eq!(read("redis://h:7/2/a/b"), found("a/b", 2, "redis://h:7/2/a/b"));
        assert_eq!(read("redis://u:s3@h:7/app:beat"), found("app:beat", 0, "redis://h:7/app:beat"));
        for wrong in ["redis://h", "redis://h/", "redis:///beat", "rediss://h/beat", "/run/beat"] {
            assert!(read(wrong).is_err_and(|error| error.contains("redis://")), "{wrong}");
        }
        assert!(read("redis://u:s3cret@h:port/beat").is_err_and(|it| !it.contains("s3cret")));
    }

    #[test]
    fn an_age_is_what_is_gone_of_the_time_that_a_key_is_kept() {
        let kept = kept_for(b"ILKBEAT1 60000 7 123").unwrap();
        assert_eq!(age(kept, 58_000), Some(Duration::from_secs(2)));
        assert_eq!(age(kept, -1), None, "the key no longer expires");
        assert_eq!(age(kept, 61_000), None, "the key expires later than it should");
        assert_eq!(kept_for(b"1700000000"), None);
    }
}
