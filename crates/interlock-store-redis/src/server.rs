//! What a server must promise before anything is kept on it.

use std::collections::BTreeMap;

use interlock_store::{Opening, StoreError, StoreId};
use interlock_store_remote::chance;

use crate::request::Server;

/// The oldest major version that has all that is used.
const OLDEST: u32 = 7;
/// The format of the keys.
const FORMAT: &str = "1";

/// What can be left to a server.
#[derive(Debug)]
pub(crate) enum Fitness {
    /// Nothing: it loses what it acknowledges.
    Unfit(String),
    /// What is recorded; what its owner should know all the same.
    Fit(Vec<String>),
}

/// Looks how a server is set up; refuses one on which nothing would work.
pub(crate) async fn check(server: &Server) -> Result<Fitness, StoreError> {
    let info: String = server.link.ask(redis::cmd("INFO").arg("everything")).await?;
    let told: BTreeMap<&str, &str> =
        info.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
    let get = |name: &str| told.get(name).copied().unwrap_or_default();
    let major = get("redis_version").split('.').next().and_then(|text| text.parse::<u32>().ok());
    if major.is_none_or(|major| major < OLDEST) {
        let message = format!("this Redis is {}: Interlock needs 7 or later", get("redis_version"));
        return Err(StoreError::permanent(message));
    }
    if get("maxmemory") != "0" && get("maxmemory_policy").starts_with("allkeys") {
        return Ok(Fitness::Unfit(format!(
            "this Redis deletes keys when it is full (`maxmemory-policy {}`), and with them what is recorded: set it to \
             `noeviction`",
            get("maxmemory_policy")
        )));
    }
    if get("cluster_enabled") == "1" {
        refuse_moving(server).await?;
    }
    let mut warnings = match persistence(server, get("aof_enabled")).await {
        Fitness::Fit(warnings) => warnings,
        unfit @ Fitness::Unfit(_) => return Ok(unfit),
    };
    if get("maxmemory") != "0" && get("maxmemory_policy").starts_with("volatile") {
        warnings.push(format!(
            "this Redis deletes keys that expire when it is full (`maxmemory-policy {}`): a request may then be done twice, or \
             be taken for forgotten; set it to `noeviction`",
            get("maxmemory_policy")
        ));
    }
    Ok(Fitness::Fit(warnings))
}

/// While a slot moves from one server of a cluster to another, its keys are on both: a script would find half of them.
async fn refuse_moving(server: &Server) -> Result<(), StoreError> {
    let home = server.keys.name("about");
    let slot: u16 = server.link.ask(redis::cmd("CLUSTER").arg("KEYSLOT").arg(home)).await?;
    let nodes: String = server.link.ask(redis::cmd("CLUSTER").arg("NODES")).await?;
    if nodes.contains(&format!("[{slot}-")) {
        let message = format!(
            "the hash slot {slot} of the store is being moved to another server of the cluster: wait until it is there"
        );
        return Err(StoreError::retryable(message));
    }
    Ok(())
}

async fn persistence(server: &Server, log: &str) -> Fitness {
    // Managed servers do not tell their settings.
    let setting = async |name: &str| -> Option<String> {
        let found: Result<BTreeMap<String, String>, _> =
            server.link.ask(redis::cmd("CONFIG").arg("GET").arg(name)).await;
        found.ok().and_then(|found| found.into_values().next())
    };
    if log != "1" {
        return match setting("save").await.as_deref() {
            Some("") => Fitness::Unfit(
                "this Redis keeps nothing on disk: start it with `appendonly yes` and `appendfsync always`"
                    .to_owned(),
            ),
            Some(_) | None => Fitness::Fit(vec![
                "this Redis has no append-only file: a restart forgets minutes of what was acknowledged; start it with \
                 `appendonly yes` and `appendfsync always`"
                    .to_owned(),
            ]),
        };
    }
    match setting("appendfsync").await.as_deref() {
        Some("always") | None => Fitness::Fit(vec![]),
        Some(other) => Fitness::Fit(vec![format!(
            "this Redis has `appendfsync {other}`: a failing machine forgets what was acknowledged last; `always` does not"
        )]),
    }
}

/// How many shards there are: as many as were asked for when the store was made.
pub(crate) async fn shard_count(
    server: &Server,
    asked: u16,
    opening: Opening,
) -> Result<u16, StoreError> {
    let about = server.keys.name("about");
    let made = [
        ("format", FORMAT.to_owned()),
        ("shards", asked.max(1).to_string()),
        ("identity", StoreId(chance()).to_string()),
    ];
    for (name, value) in made.into_iter().filter(|_| opening == Opening::Make) {
        let _made: i64 =
            server.link.ask(redis::cmd("HSETNX").arg(&about).arg(name).arg(value)).await?;
    }
    let found: Vec<Option<String>> =
        server.link.ask(redis::cmd("HMGET").arg(&about).arg("format").arg("shards")).await?;
    if found.iter().all(Option::is_none) {
        let message = format!(
            "nothing was recorded yet under the prefix `{}`; `interlock serve` makes a store",
            server.keys.prefix
        );
        return Err(StoreError::permanent(message));
    }
    let mut found = found.into_iter().map(Option::unwrap_or_default);
    let (format, shards) = (found.next().unwrap_or_default(), found.next().unwrap_or_default());
    if format != FORMAT {
        let message = format!(
            "the keys under `{}` were written by another Interlock (format {format}, this one knows {FORMAT}): use \
             that version, or another `redis.keyPrefix`; nothing was changed",
            server.keys.prefix
        );
        return Err(StoreError::permanent(message));
    }
    shards.parse().map_err(|_broken| {
        StoreError::permanent(format!("the store says that it has `{shards}` shards"))
    })
}
