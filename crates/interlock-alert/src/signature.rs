//! The signature of a webhook: a receiver that knows the secret can tell who sent it, and when.
//!
//! `X-Interlock-Signature: sha256=<hex>` is the HMAC-SHA256, under the channel's secret, of the timestamp (the text of
//! `X-Interlock-Timestamp`, seconds since 1970), a dot, and the body. The timestamp is signed too, so that an old
//! request cannot be replayed as a new one.

use std::fmt::Write as _;

use aws_lc_rs::hmac;

/// The value of the signature's header.
pub fn sign(secret: &str, timestamp: &str, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("{timestamp}.{body}").as_bytes());
    let mut text = "sha256=".to_owned();
    for byte in tag.as_ref() {
        // Writing to a text cannot fail.
        let _written = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_what_any_other_hmac_says() {
        // printf '%s' '1772011500.{"level":"error"}' | openssl dgst -sha256 -hmac whisper
        assert_eq!(
            sign("whisper", "1772011500", r#"{"level":"error"}"#),
            "sha256=cb89a49a89f9067a96f69021d05eeecd2ac79bb3c4928e68c512f8fb6a03df34"
        );
    }
}
