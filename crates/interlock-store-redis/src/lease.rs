//! Leases, by the server's clock.

use interlock_store::{Lease, Role, Shard, StoreError, Term, Writer};
use interlock_store_remote::{instant, whole_ttl};
use jiff::{SignedDuration, Timestamp};
use redis::Value;

use crate::{
    link::Script,
    request::{Server, number, text},
};

/// How often a shard is asked for a higher term.
const ROUNDS: usize = 3;

/// Gives a role's shard to a holder, if nobody else holds it.
pub(crate) async fn acquire(
    server: &Server,
    (role, shard): (Role, Shard),
    holder: String,
    ttl: SignedDuration,
) -> Result<Option<Lease>, StoreError> {
    let place = server.places.of_shard(shard);
    let mut least = 0;
    for _ in 0..ROUNDS {
        let [lease, lock] = place.keys.lease(role, shard);
        let mut arguments = vec!["acquire".to_owned(), lease, lock, holder.clone()];
        arguments.extend([whole_ttl(ttl).to_string(), least.to_string()]);
        let answer = server.write(place, Script::Lease, arguments).await?;
        let Some(lease) = given(answer, (role, shard))? else { return Ok(None) };
        if !server.places.are_apart() {
            return Ok(Some(lease));
        }
        match register(server, lease.writer, &holder, ttl).await? {
            Registered::Until(expires) => return Ok(Some(Lease { expires, ..lease })),
            // A shard that has forgotten a term, on a server whose clock is behind, gives one that was given before.
            Registered::Over(Term(known)) => least = known.saturating_add(1),
        }
    }
    Ok(None)
}

/// What the home says to a lease that a shard has given.
enum Registered {
    Until(Timestamp),
    /// This term, or a later one, was the last.
    Over(Term),
}

/// Has the home keep a copy of a lease. `_system` is fenced by it, and it is what the roll tells, both by the clock of the home. So a lease
/// counts once its copy is there.
async fn register(
    server: &Server,
    writer: Writer,
    holder: &str,
    ttl: SignedDuration,
) -> Result<Registered, StoreError> {
    let home = &server.places.home;
    let [lease, _lock] = home.keys.lease(writer.role, writer.shard);
    let arguments = vec![
        "register".to_owned(),
        lease,
        writer.term.0.to_string(),
        holder.to_owned(),
        whole_ttl(ttl).to_string(),
    ];
    let mut parts = server.write(home, Script::Lease, arguments).await?.into_iter();
    let term = Term(parts.next().map_or(Ok(0), number)?);
    Ok(match parts.next() {
        Some(expires) => Registered::Until(instant(number(expires)?)?),
        None => Registered::Over(term),
    })
}

/// Extends a lease, if its term is not over.
pub(crate) async fn renew(
    server: &Server,
    writer: Writer,
    ttl: SignedDuration,
) -> Result<Option<Lease>, StoreError> {
    let place = server.places.of_shard(writer.shard);
    let [lease, lock] = place.keys.lease(writer.role, writer.shard);
    let (term, time) = (writer.term.0.to_string(), whole_ttl(ttl).to_string());
    let arguments = vec!["renew".to_owned(), lease, lock, term, time];
    let answer = server.write(place, Script::Lease, arguments).await?;
    let holder = answer.get(2).cloned().map_or_else(|| Ok(String::new()), text)?;
    let Some(lease) = given(answer, (writer.role, writer.shard))? else { return Ok(None) };
    if !server.places.are_apart() {
        return Ok(Some(lease));
    }
    Ok(match register(server, writer, &holder, ttl).await? {
        Registered::Until(expires) => Some(Lease { expires, ..lease }),
        Registered::Over(_) => None,
    })
}

/// Ends a lease, if it is not over: the copy first, so that nobody who has it next meets a right of ours.
pub(crate) async fn release(server: &Server, writer: Writer) -> Result<(), StoreError> {
    let own = server.places.of_shard(writer.shard);
    let home = server.places.are_apart().then_some(&server.places.home);
    for place in home.into_iter().chain([own]) {
        let [lease, lock] = place.keys.lease(writer.role, writer.shard);
        let arguments = vec!["release".to_owned(), lease, lock, writer.term.0.to_string()];
        server.write(place, Script::Lease, arguments).await?;
    }
    Ok(())
}

fn given(answer: Vec<Value>, (role, shard): (Role, Shard)) -> Result<Option<Lease>, StoreError> {
    let mut parts = answer.into_iter();
    let (Some(term), Some(expires)) = (parts.next(), parts.next()) else { return Ok(None) };
    let writer = Writer { role, shard, term: Term(number(term)?) };
    Ok(Some(Lease { writer, expires: instant(number(expires)?)? }))
}
