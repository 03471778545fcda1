//! The way to a PostgreSQL server, for the store and for the archive.
//!
//! `tokio-postgres` reads addresses but knows no TLS. Here the parameters of libpq that are about it (`sslmode`,
//! `sslrootcert`, `sslcert`, `sslkey`) are taken out of the address first and mean what they mean everywhere:
//!
//! | `sslmode` | over TLS | who is believed |
//! |---|---|---|
//! | `disable` | never | – |
//! | `allow`, `prefer` (unless said) | if the server can | anybody |
//! | `require` | always | anybody; with `sslrootcert` as `verify-ca` |
//! | `verify-ca` | always | who has a certificate of `sslrootcert`, or of the machine's authorities |
//! | `verify-full` | always | the same, if the certificate is for the host of the address |

mod address;
mod tls;

pub use self::{
    address::{Address, AddressError},
    tls::Secured,
};

/// A client, and what must be polled for it to speak.
pub type Line = (
    tokio_postgres::Client,
    tokio_postgres::Connection<tokio_postgres::Socket, Secured<tokio_postgres::Socket>>,
);

/// An error with what it came from, and what to do where that can be said.
pub fn whole(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    for (sign, advice) in ADVICE {
        if text.contains(sign) {
            text = format!("{text} ({advice})");
        }
    }
    text
}

/// What to do, by what a failure says.
const ADVICE: [(&str, &str); 4] = [
    ("server does not support TLS", "write `sslmode=disable` if that is meant to be so"),
    ("UnknownIssuer", "`sslrootcert=FILE` in the address names the authority to believe"),
    ("not valid for name", "`sslmode=verify-ca` does not compare the names"),
    ("CertificateRequired", "`sslcert=FILE` and `sslkey=FILE` in the address say who we are"),
];
