//! A client for the server that the settings name, over TLS if they say so.

use std::{fmt, fs, path::Path};

use interlock_store::StoreError;
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo,
    TlsCertificates,
};

use crate::store::{RedisSettings, RedisTls};

pub(crate) fn client(settings: &RedisSettings) -> Result<Client, StoreError> {
    let RedisSettings { addr, username, password, db, tls, .. } = settings;
    let wrong = |what: &dyn fmt::Display| {
        StoreError::permanent(format!(
            "`redis.addr` is not the address of a server: {addr}: {what}"
        ))
    };
    if addr.contains("://") {
        return Err(wrong(
            &"write `host:port`, and `tls: true` beside it if the server speaks TLS",
        ));
    }
    let (host, port) = addr.rsplit_once(':').unwrap_or((addr, "6379"));
    let port: u16 = port.parse().map_err(|error| wrong(&error))?;
    let info = (host, port).into_connection_info().map_err(|error| wrong(&error))?;
    let mut login = RedisConnectionInfo::default().set_db(i64::from(*db));
    if let Some(username) = username {
        login = login.set_username(username);
    }
    if let Some(password) = password {
        login = login.set_password(password);
    }
    let info = info.set_redis_settings(login);
    let Some(tls) = tls else { return Client::open(info).map_err(|error| wrong(&error)) };
    let host = host.to_owned();
    let secure = ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None };
    let certificates = certificates(tls)?;
    // Another part of the process may have chosen already, and chose the same.
    let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Client::build_with_tls(info.set_addr(secure), certificates).map_err(|error| {
        StoreError::permanent(format!("the certificates for Redis cannot be used: {error}"))
    })
}

fn certificates(tls: &RedisTls) -> Result<TlsCertificates, StoreError> {
    let RedisTls { ca, client } = tls;
    let root_cert = ca.as_deref().map(|file| read("ca", file)).transpose()?;
    let client_tls = match client {
        Some((cert, key)) => Some(ClientTlsConfig {
            client_cert: read("cert", cert)?,
            client_key: read("key", key)?,
        }),
        None => None,
    };
    Ok(TlsCertificates { client_tls, root_cert })
}

fn read(key: &str, file: &Path) -> Result<Vec<u8>, StoreError> {
    let wrong = |what: &dyn fmt::Display| {
        StoreError::permanent(format!(
            "`redis.{key}` names {}, which cannot be used: {what}",
            file.display()
        ))
    };
    let bytes = fs::read(file).map_err(|error| wrong(&error))?;
    // A file of another kind would be a file without certificates, and then nobody is believed.
    if !bytes.windows(11).any(|window| window == b"-----BEGIN ") {
        return Err(wrong(&"it holds nothing in PEM format"));
    }
    Ok(bytes)
}
