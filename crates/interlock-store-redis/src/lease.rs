//! Leases, by the server's clock.

use interlock_store::{Lease, Role, Shard, StoreError, Term, Writer};
use interlock_store_remote::{instant, whole_ttl};
use jiff::SignedDuration;
use redis::Value;

use crate::{
    link::Script,
    request::{Server, number},
};

/// Gives a role's shard to a holder, if nobody else holds it.
pub(crate) async fn acquire(
    server: &Server,
    (role, shard): (Role, Shard),
    holder: String,
    ttl: SignedDuration,
) -> Result<Option<Lease>, StoreError> {
    let [lease, lock] = server.keys.lease(role, shard);
    let arguments = vec!["acquire".to_owned(), lease, lock, holder, whole_ttl(ttl).to_string()];
    given(server.write(Script::Lease, arguments).await?, (role, shard))
}

/// Extends a lease, if its term is not over.
pub(crate) async fn renew(
    server: &Server,
    writer: Writer,
    ttl: SignedDuration,
) -> Result<Option<Lease>, StoreError> {
    let [lease, lock] = server.keys.lease(writer.role, writer.shard);
    let (term, ttl) = (writer.term.0.to_string(), whole_ttl(ttl).to_string());
    let arguments = vec!["renew".to_owned(), lease, lock, term, ttl];
    given(server.write(Script::Lease, arguments).await?, (writer.role, writer.shard))
}

/// Ends a lease, if it is not over.
pub(crate) async fn release(server: &Server, writer: Writer) -> Result<(), StoreError> {
    let [lease, lock] = server.keys.lease(writer.role, writer.shard);
    let arguments = vec!["release".to_owned(), lease, lock, writer.term.0.to_string()];
    server.write(Script::Lease, arguments).await.map(drop)
}

fn given(answer: Vec<Value>, (role, shard): (Role, Shard)) -> Result<Option<Lease>, StoreError> {
    let mut parts = answer.into_iter();
    let (Some(term), Some(expires)) = (parts.next(), parts.next()) else { return Ok(None) };
    let writer = Writer { role, shard, term: Term(number(term)?) };
    Ok(Some(Lease { writer, expires: instant(number(expires)?)? }))
}
