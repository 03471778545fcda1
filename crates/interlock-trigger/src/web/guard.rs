//! The guard at the door: which addresses are dialled.
//!
//! It is the client's resolver. It resolves a name once and hands on only the addresses that may be dialled; the
//! client dials exactly those. A check of the name, or of an address looked up for the check alone, could be
//! answered differently a moment later (DNS rebinding). An address that stands in the url is not resolved, so it is
//! checked before; the url parser has by then turned `0x7f.1` and `2130706433` into what they mean.

use std::{
    error::Error,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use interlock_core::outbound::Outbound;
use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};

/// Resolves names to addresses that may be dialled; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Guard(Arc<Outbound>);

/// A host that may not be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    host: String,
    objection: String,
    /// Whether a site can allow it.
    can_open: bool,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, objection, can_open } = self;
        write!(f, "{host} may not be called: {objection}")?;
        if *can_open { f.write_str("; `engine.outbound.allow` can open it") } else { Ok(()) }
    }
}

impl Error for Refused {}

impl Refused {
    /// The refusal that an error of the client was caused by.
    pub(super) fn within<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        let mut cause = Some(error);
        while let Some(found) = cause {
            if let Some(refused) = found.downcast_ref::<Self>() {
                return Some(refused);
            }
            cause = found.source();
        }
        None
    }
}

impl Guard {
    pub(super) fn new(outbound: &Outbound) -> Self {
        Self(Arc::new(outbound.clone()))
    }

    /// Checks what stands in the url itself: how it is called, and an address. A name and a password in it are refused:
    /// they are what makes one host look like another, and they end up in logs.
    pub(super) fn check(&self, url: &Url) -> Result<(), Refused> {
        let written = url.host_str().unwrap_or_default();
        let refused = |objection: &str| {
            Err(Refused {
                host: written.to_owned(),
                objection: objection.to_owned(),
                can_open: false,
            })
        };
        if !matches!(url.scheme(), "http" | "https") {
            return refused("only http and https are");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refused("its address holds a name or a password, which belong into a header");
        }
        let bare = written.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(address) => self.objection(written, address).map_or(Ok(()), Err),
            Err(_it_is_a_name) => Ok(()),
        }
    }

    fn objection(&self, host: &str, address: IpAddr) -> Option<Refused> {
        let objection = self.0.objection(address)?;
        let objection = if host.contains(&address.to_string()) {
            format!("it {objection}")
        } else {
            format!("its address {address} {objection}")
        };
        Some(Refused { host: host.to_owned(), objection, can_open: true })
    }
}

impl Guard {
    /// The addresses of a name that may be dialled; an error that holds a [`Refused`] if there are only others.
    pub(super) async fn addresses(
        &self,
        name: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
        let mut refusal = None;
        let mut dialled = Vec::new();
        for address in tokio::net::lookup_host((name, port)).await? {
            match self.objection(name, address.ip()) {
                Some(refused) => refusal = Some(refused),
                None => dialled.push(address),
            }
        }
        match refusal {
            Some(refused) if dialled.is_empty() => Err(refused.into()),
            Some(_) | None => Ok(dialled),
        }
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            // The client fills in the port.
            let addresses = guard.addresses(name.as_str(), 0).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}
