//! What a ping's query says: `rid=…` and `create=1`. Others are passed over, as those of a service that one moves
//! away from may be there.

use interlock_answers::ErrorCode;

use crate::error::ApiError;

/// Bytes of a run id.
pub const RID_MAX: usize = 200;

/// What is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query {
    /// The caller's name for the run.
    pub(crate) rid: Option<String>,
    /// Whether a pipeline that is not there is made.
    pub(crate) create: bool,
}

/// Reads a query.
pub(crate) fn read(query: Option<&str>) -> Result<Query, ApiError> {
    let mut asked = Query::default();
    for pair in query.unwrap_or_default().split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "rid" => asked.rid = Some(rid(value)?),
            "create" => asked.create = value == "1",
            _ => {}
        }
    }
    Ok(asked)
}

/// A run id: some visible characters.
fn rid(value: &str) -> Result<String, ApiError> {
    let text = decoded(value).filter(|text| is_rid(text));
    text.ok_or_else(bad_rid)
}

/// A run id that cannot be one.
pub(crate) fn bad_rid() -> ApiError {
    let hint = format!("It has 1 to {RID_MAX} visible ASCII characters, such as a UUID.");
    ApiError::new(ErrorCode::BadRid, "`rid` is not accepted", hint)
}

/// Whether a text may name a run.
pub fn is_rid(text: &str) -> bool {
    (1..=RID_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A value without its percent signs.
fn decoded(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_a_run_and_may_ask_for_the_pipeline() {
        let check = |query: Option<&str>, rid: Option<&str>, create: bool| {
            let rid = rid.map(str::to_owned);
            assert_eq!(read(query).ok(), Some(Query { rid, create }), "{query:?}");
        };
        check(None, None, false);
        check(Some(""), None, false);
        check(Some("rid=a-1&create=1"), Some("a-1"), true);
        check(Some("create=0&x=%zz&rid=a%2Fb"), Some("a/b"), false);
        for odd in ["rid=", "rid=%", "rid=%f", "rid=%ff", "rid=a%20b", "rid=%00"] {
            assert!(read(Some(odd)).is_err(), "{odd}");
        }
        let long = format!("rid={}", "a".repeat(RID_MAX + 1));
        assert!(read(Some(&long)).is_err());
    }
}
