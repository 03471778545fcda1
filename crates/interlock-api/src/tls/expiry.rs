//! When a certificate holds: as much of X.509 as that takes (RFC 5280, 4.1).

use jiff::{SignedDuration, Timestamp, civil::DateTime, tz::TimeZone};

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version, which the oldest certificates leave out.
const VERSION: u8 = 0xa0;

/// So long before its end a certificate should have been renewed, if it is one for months.
const RENEWED_BEFORE: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Of one that lasts for days or hours: this part of its time.
const RENEWED_PART: i32 = 10;

/// When a certificate holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// From when on.
    pub from: Timestamp,
    /// Until when.
    pub until: Timestamp,
}

impl Validity {
    /// Whether it is over.
    pub fn is_over(self, now: Timestamp) -> bool {
        self.until <= now
    }

    /// What people should hear of it, if anything.
    pub fn complaint(self, now: Timestamp) -> Option<String> {
        let Self { from, until } = self;
        if self.is_over(now) {
            return Some(format!("the certificate of `server.tls` ended at {until}"));
        }
        if now < from {
            return Some(format!("the certificate of `server.tls` holds from {from} on"));
        }
        let due = RENEWED_BEFORE.min(until.duration_since(from) / RENEWED_PART);
        let is_due = until.duration_since(now) < due;
        is_due.then(|| format!("the certificate of `server.tls` ends at {until}"))
    }
}

/// When a certificate holds; none if that cannot be read.
pub(super) fn validity(certificate: &[u8]) -> Option<Validity> {
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (mut fields, _) = element(whole, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        fields = skip(fields)?;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        fields = skip(fields)?;
    }
    let (validity, _) = element(fields, SEQUENCE)?;
    Some(Validity { from: instant(validity)?, until: instant(skip(validity)?)? })
}

/// The content of the element in front, which is of that kind, and what comes after it.
fn element(bytes: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = split(bytes)?;
    (tag == kind).then_some((content, rest))
}

/// What comes after the element in front.
fn skip(bytes: &[u8]) -> Option<&[u8]> {
    split(bytes).map(|(_, _, rest)| rest)
}

/// The element in front: its kind, its content, and what comes after it.
fn split(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        short @ 0..=0x7f => (usize::from(short), rest),
        long => {
            let digits = usize::from(long & 0x7f);
            if !(1..=4).contains(&digits) {
                return None;
            }
            let (digits, rest) = rest.split_at_checked(digits)?;
            let length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
            (length, rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// `YYMMDDHHMMSSZ`, of the years 1950 to 2049, or `YYYYMMDDHHMMSSZ`.
fn instant(bytes: &[u8]) -> Option<Timestamp> {
    let (tag, content, _) = split(bytes)?;
    let text = str::from_utf8(content).ok()?.strip_suffix('Z')?;
    let text = match tag {
        UTC_TIME => {
            let century = if text.get(..2)?.parse::<u8>().ok()? < 50 { "20" } else { "19" };
            format!("{century}{text}")
        }
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%S", text).ok()?;
    time.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, prelude::BASE64_STANDARD};

    use super::*;

    /// What `openssl req -x509 -newkey ed25519 -days 3650` made.
    const CERTIFICATE: &str = "MIIBLDCB36ADAgECAhQ2R6tMDMcCDh7yZn7HbGTSH33vFTAFBgMrZXAwDDEKMAgGA1UEAwwBeDAe\
        Fw0yNjExMTkxOTU0MzNaFw0zNjExMTYxOTU0MzNaMAwxCjAIBgNVBAMMAXgwKjAFBgMrZXADIQCUbya8SJhI5CeoV1a6EMXxlolz\
        Qy8dtLEIxoBVm4Ow/qNTMFEwHQYDVR0OBBYEFHHTB3zccJ+s9k/Hb1LWHmIfQIkVMB8GA1UdIwQYMBaAFHHTB3zccJ+s9k/Hb1LW\
        HmIfQIkVMA8GA1UdEwEB/wQFMAMBAf8wBQYDK2VwA0EAVeDUsq9PhQt/Y5sF+GCMdVENPk4iXVTmkpvRFRFQfLm+hE1b8Ov70E9C\
        zVhfH7/GK/xid+f99aOiyDCoNTkwCA==";

    #[test]
    fn when_a_certificate_holds_is_read_and_what_is_none_holds_never() {
        let certificate = BASE64_STANDARD.decode(CERTIFICATE).unwrap();
        let found = validity(&certificate).map(|it| (it.from.to_string(), it.until.to_string()));
        let expected = ("2026-11-19T19:54:33Z".to_owned(), "2036-11-16T19:54:33Z".to_owned());
        assert_eq!(found, Some(expected));
        for cut in 0..certificate.len().min(90) {
            assert_eq!(validity(&certificate[..cut]), None, "{cut}");
        }
        for odd in [&[][..], &[0x30], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], &[0x30, 0x80, 0, 0]] {
            assert_eq!(validity(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn a_certificate_is_to_be_renewed_a_week_before_its_end_or_a_tenth_of_its_time() {
        let from: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let hours = SignedDuration::from_hours;
        let told = |lasts: i64, age: i64| {
            let validity = Validity { from, until: from + hours(lasts) };
            validity
                .complaint(from + hours(age))
                .map(|said| said.split(' ').nth(4).unwrap().to_owned())
        };
        let quarter = 90 * 24;
        assert_eq!(told(quarter, quarter - 7 * 24), None);
        assert_eq!(told(quarter, quarter - 7 * 24 + 1).as_deref(), Some("ends"));
        assert_eq!(told(40, 36), None, "one that is renewed each day");
        assert_eq!(told(40, 37).as_deref(), Some("ends"));
        assert_eq!(told(40, 40).as_deref(), Some("ended"));
        assert_eq!(told(40, -1).as_deref(), Some("holds"));
    }

    #[test]
    fn both_forms_of_an_instant_are_read() {
        let read = |tag: u8, text: &str| {
            let bytes = [&[tag, text.len() as u8][..], text.as_bytes()].concat();
            instant(&bytes).map(|at| at.to_string())
        };
        let check =
            |tag, text, expected: &str| assert_eq!(read(tag, text).as_deref(), Some(expected));
        check(UTC_TIME, "491231235959Z", "2049-12-31T23:59:59Z");
        check(UTC_TIME, "500101000000Z", "1950-01-01T00:00:00Z");
        check(GENERALIZED_TIME, "20500101000000Z", "2050-01-01T00:00:00Z");
        for odd in ["", "Z", "49Z", "491331235959Z", "491231235959", "4912312359\u{e9}Z"] {
            assert_eq!(read(UTC_TIME, odd), None, "{odd}");
        }
    }
}
