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
    address::{Address, AddressError, place},
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

/// What to do about what a server refuses, where that can be said.
pub fn refusal(error: &tokio_postgres::error::DbError) -> String {
    use tokio_postgres::error::SqlState;
    let code = error.code();
    let advice = if [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION]
        .contains(code)
    {
        "; check user and password in the address"
    } else if *code == SqlState::INVALID_CATALOG_NAME {
        "; make it with `CREATE DATABASE`, or name another one in the address"
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        "; the database's owner can allow it with `GRANT CREATE ON DATABASE … TO …`, or make the schema with \
         `CREATE SCHEMA … AUTHORIZATION …`"
    } else {
        ""
    };
    format!("{} ({}){advice}", error.message(), code.code())
}
