//! Signed requests between instances.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header::RANGE};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use interlock_answers::ErrorCode;
use interlock_store::Store;
use jiff::{SignedDuration, Timestamp};

use super::InstanceIdentity;
use crate::{desk::refused, error::ApiError, surface::Surface};

/// The instance that asks.
const ASKER: HeaderName = HeaderName::from_static("interlock-instance");
/// The instance that is asked: a request to one is worth nothing to another.
const ASKED: HeaderName = HeaderName::from_static("interlock-asked");
const SIGNED_AT: HeaderName = HeaderName::from_static("interlock-signed-at");
const SIGNATURE: HeaderName = HeaderName::from_static("interlock-signature");
/// How far the clocks of two instances and the way between them may be apart: one that is further off ends itself.
const SKEW_MAX: SignedDuration = SignedDuration::from_secs(30);

/// What is signed.
struct SignedRequest<'a> {
    asker: &'a str,
    asked: &'a str,
    at: &'a str,
    /// Path and query.
    target: &'a str,
    range: &'a str,
}

impl SignedRequest<'_> {
    fn bytes(&self) -> Vec<u8> {
        let Self { asker, asked, at, target, range } = self;
        // No part has an end of a line: they are heads of a request.
        format!("interlock-request-1\n{asker}\n{asked}\n{at}\n{target}\n{range}").into_bytes()
    }
}

/// The heads of a request to another instance.
pub(super) fn sign(
    identity: &InstanceIdentity,
    asked: &str,
    at: Timestamp,
    target: &str,
    range: Option<&HeaderValue>,
) -> Option<HeaderMap> {
    let (asker, at) = (identity.name.as_str(), at.to_string());
    let text = range.map_or(Some(""), |range| range.to_str().ok())?;
    let request = SignedRequest { asker, asked, at: &at, target, range: text };
    let signature = BASE64_URL_SAFE_NO_PAD.encode(identity.key.sign(&request.bytes()));
    let mut headers = HeaderMap::new();
    for (name, value) in [(ASKER, asker), (ASKED, asked), (SIGNED_AT, &at), (SIGNATURE, &signature)]
    {
        headers.insert(name, HeaderValue::from_str(value).ok()?);
    }
    headers.extend(range.cloned().map(|range| (RANGE, range)));
    Some(headers)
}

/// Makes sure that another instance of the same store asks, and means this one.
pub(crate) async fn verify(
    surface: &Surface,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), ApiError> {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let shown = (text(&ASKER), text(&ASKED), text(&SIGNED_AT), text(&SIGNATURE));
    let (Some(asker), Some(asked), Some(at), Some(signature)) = shown else {
        return Err(not_signed("it has no signature of another instance"));
    };
    let identity = surface.identity.get().ok_or_else(ApiError::starting)?;
    if asked != identity.name {
        return Err(not_signed("it was meant for another instance"));
    }
    let store = surface.open_store()?;
    let now = store.now().await.map_err(refused)?;
    let signed_at = at.parse::<Timestamp>().ok();
    if signed_at.is_none_or(|at| now.duration_since(at).abs() > SKEW_MAX) {
        return Err(not_signed("it was not signed just now"));
    }
    let target = uri.path_and_query().map_or("", |target| target.as_str());
    let range = text(&RANGE).unwrap_or_default();
    let request = SignedRequest { asker, asked, at, target, range };
    let key = public_key(store.as_ref(), asker).await?;
    let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap_or_default();
    let is_right = key.is_some_and(|key| {
        UnparsedPublicKey::new(&ED25519, key).verify(&request.bytes(), &signature).is_ok()
    });
    if is_right { Ok(()) } else { Err(not_signed("its signature is not that of an instance")) }
}

/// The public key that an instance said in the store.
async fn public_key(store: &dyn Store, name: &str) -> Result<Option<Vec<u8>>, ApiError> {
    let instances = store.instances().await.map_err(refused)?;
    let found = instances.into_iter().find(|row| row.instance == name);
    let key = found.and_then(|row| row.record.public_key);
    Ok(key.and_then(|key| BASE64_URL_SAFE_NO_PAD.decode(key).ok()))
}

fn not_signed(because: &str) -> ApiError {
    let message =
        format!("only other instances may ask this, and the request is refused: {because}");
    let hint = "Ask `/api/v1/runs/RUN/log`: any instance fetches a log from where it is.";
    ApiError::new(ErrorCode::SignatureNeeded, message, hint)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use interlock_store::{memory::MemoryStore, record::InstanceRecord};

    use super::*;

    const TARGET: &str = "/api/v1/instances/runs/a~b~1/log?lines=3";

    fn now() -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1)
    }

    fn said(key: &str) -> InstanceRecord {
        InstanceRecord {
            version: "1".to_owned(),
            roles: vec![],
            host: "there".to_owned(),
            pid: 1,
            started_at: now(),
            address: None,
            certificate: None,
            public_key: Some(key.to_owned()),
            jobs_host: None,
            loops: vec![],
            clock_skew: None,
            leases: vec![],
        }
    }

    #[tokio::test]
    async fn only_what_an_instance_signed_for_this_one_just_now_is_believed() {
        let store = Arc::new(MemoryStore::new(1, Arc::new(now)));
        let identity = |name: &str| InstanceIdentity::new(name.to_owned(), "x".to_owned()).unwrap();
        let (me, other, stranger) = (identity("me"), identity("other"), identity("other"));
        store.report_instance("other", &said(&other.public_key())).await.unwrap();
        let surface = Surface::new("1");
        surface.store.set(store as Arc<dyn Store>).unwrap();
        surface.identity.set(me).unwrap();
        let range = HeaderValue::from_static("bytes=0-3");
        let check = async |headers: Option<HeaderMap>, target: &str| {
            let uri: Uri = target.parse().unwrap();
            verify(&surface, &uri, &headers.unwrap()).await.map_err(|error| error.message)
        };
        let by = |who, asked, at| sign(who, asked, at, TARGET, Some(&range));
        assert_eq!(check(by(&other, "me", now()), TARGET).await, Ok(()));
        let edge = now() + SKEW_MAX;
        assert_eq!(check(by(&other, "me", edge), TARGET).await, Ok(()));
        let late = edge + SignedDuration::from_secs(1);
        assert!(check(by(&other, "me", late), TARGET).await.unwrap_err().contains("just now"));
        assert!(check(by(&other, "you", now()), TARGET).await.unwrap_err().contains("meant for"));
        assert!(check(by(&stranger, "me", now()), TARGET).await.unwrap_err().contains("not that"));
        let elsewhere = TARGET.replace("a~b~1", "a~b~2");
        assert!(check(by(&other, "me", now()), &elsewhere).await.unwrap_err().contains("not that"));
        let mut changed = by(&other, "me", now());
        changed.as_mut().unwrap().insert(RANGE, HeaderValue::from_static("bytes=0-4"));
        assert!(check(changed, TARGET).await.unwrap_err().contains("not that"));
        let mut unsigned = by(&other, "me", now());
        unsigned.as_mut().unwrap().remove(SIGNATURE);
        assert!(check(unsigned, TARGET).await.unwrap_err().contains("no signature"));
    }
}
