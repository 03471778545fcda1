//! What instances say of themselves: a field each of one hash at home, written over and over.

use std::collections::BTreeMap;

use interlock_store::{INSTANCES_KEPT, InstanceRow, StoreError};
use interlock_store_remote::{instance_row, whole_ttl};

use crate::{link::Script, request::Server};

const REPORTS: &str = "self-reports";

/// Keeps what an instance says; what others said long ago goes.
pub(crate) async fn report(
    server: &Server,
    instance: String,
    body: String,
) -> Result<(), StoreError> {
    let home = &server.places.home;
    let kept = whole_ttl(INSTANCES_KEPT).to_string();
    let arguments = vec!["report".to_owned(), home.keys.name(REPORTS), instance, body, kept];
    server.write(home, Script::Lease, arguments).await.map(drop)
}

/// What all of them said last, by name.
pub(crate) async fn all(server: &Server) -> Result<Vec<InstanceRow>, StoreError> {
    let home = &server.places.home;
    let mut all = redis::cmd("HGETALL");
    all.arg(home.keys.name(REPORTS));
    let fields: BTreeMap<String, String> = server.ask(home, &all).await?;
    let row = |(instance, value): (String, String)| {
        let (said_ms, body) = value.split_once(' ').unwrap_or(("", value.as_str()));
        instance_row(&instance, said_ms.parse().unwrap_or_default(), body)
    };
    fields.into_iter().map(row).collect()
}
