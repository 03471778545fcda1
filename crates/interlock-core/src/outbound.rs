//! Which addresses Interlock itself may dial: for triggers, HTTP evaluators and webhooks.
//!
//! Whoever may write a pipeline file chooses a url, and the daemon calls it from where the daemon is. What
//! must not be reachable that way are the addresses that give their secrets to anybody on the host: the
//! metadata services of the clouds, which live on link-local addresses. Nothing legitimate is there, so they
//! are refused unless somebody opens them. Loopback and private networks are the opposite: that is where people
//! run Airflow and their own services, and a guard that refuses them is a guard that gets switched off as a
//! whole. So they are allowed, and `engine.outbound.deny` closes what a site does not want.
//!
//! The rule is about addresses, not names: it is asked after a name was resolved, about the very address that is
//! dialled next, so that a name that changes its mind in between (DNS rebinding) gains nothing.

// The types of addresses are plain data; only `std::net` could also dial them.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;

use crate::text::TextError;

/// A block of addresses: `10.0.0.0/8`, `fd00::/8`, or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    bits: u8,
}

impl Network {
    const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Self {
        Self { first: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
    }

    const fn v6(first: [u16; 3], last: u16, bits: u8) -> Self {
        let [a, b, c] = first;
        Self { first: IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, last)), bits }
    }

    /// Reads a block as people write it.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        const HELP: &str = "Write an address or a block, like `10.0.0.0/8` or `fd00::/8`.";
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let Ok(first) = address.parse::<IpAddr>() else {
            let message = format!("`{address}` is not an IP address");
            return Err(TextError::new(0..address.len(), message, HELP));
        };
        let bits_max = if first.is_ipv4() { 32 } else { 128 };
        let Some(bits) = bits else { return Ok(Self { first, bits: bits_max }) };
        match bits.parse::<u8>() {
            Ok(bits) if bits <= bits_max => Ok(Self { first, bits }),
            Ok(_) | Err(_) => {
                let span = address.len() + 1..text.len();
                let message = format!("`{bits}` is not a number from 0 to {bits_max}");
                Err(TextError::new(span, message, HELP))
            }
        }
    }

    /// Whether an address is one of the block.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (first, asked, width) = match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(asked)) => {
                (u128::from(first.to_bits()), u128::from(asked.to_bits()), 32)
            }
            (IpAddr::V6(first), IpAddr::V6(asked)) => (first.to_bits(), asked.to_bits(), 128),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
        };
        let rest = width - u32::from(self.bits);
        // A shift by the whole width would overflow; nothing is left to compare then.
        (first ^ asked).checked_shr(rest).unwrap_or(0) == 0
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

/// What is refused unless it is opened, and what it is.
const REFUSED: &[(Network, &str)] = &[
    (Network::v4(0, 0, 0, 0, 8), "is no address of anybody"),
    (Network::v4(169, 254, 0, 0, 16), "is link-local, where clouds keep their metadata"),
    (Network::v4(100, 100, 100, 200, 32), "is a cloud's metadata service"),
    (Network::v4(168, 63, 129, 16, 32), "is a cloud's metadata service"),
    (Network::v4(192, 0, 0, 192, 32), "is a cloud's metadata service"),
    (Network::v4(224, 0, 0, 0, 4), "is multicast"),
    (Network::v4(240, 0, 0, 0, 4), "is broadcast or reserved"),
    (Network::v6([0, 0, 0], 0, 128), "is no address of anybody"),
    (Network::v6([0xfe80, 0, 0], 0, 10), "is link-local"),
    (Network::v6([0xfd00, 0xec2, 0], 0, 32), "is a cloud's metadata service"),
    (Network::v6([0xfd20, 0xce, 0], 0x254, 128), "is a cloud's metadata service"),
    (Network::v6([0xff00, 0, 0], 0, 8), "is multicast"),
];

/// What a site says about outbound calls; the default says nothing more than the built-in list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outbound {
    /// May be dialled, whatever else is said.
    pub allow: Vec<Network>,
    /// May not be dialled.
    pub deny: Vec<Network>,
}

impl Outbound {
    /// Why an address may not be dialled; nothing when it may.
    pub fn objection(&self, address: IpAddr) -> Option<String> {
        let written = forms(address);
        let is_in = |network: &Network| written.iter().any(|form| network.contains(*form));
        if self.allow.iter().any(is_in) {
            return None;
        }
        if let Some(network) = self.deny.iter().find(|network| is_in(network)) {
            return Some(format!("is in {network}, which `engine.outbound.deny` names"));
        }
        let refused = REFUSED.iter().find(|(network, _)| is_in(network));
        refused.map(|(_, what)| (*what).to_owned())
    }
}

/// An address and the IPv4 address that it carries a packet to, where it does: mapped, compatible, translated, NAT64
/// (the well-known prefix and the one for local use), 6to4, Teredo (which hides it by inverting it) and ISATAP.
fn forms(address: IpAddr) -> Vec<IpAddr> {
    let mut forms = vec![address];
    if let IpAddr::V6(v6) = address {
        let embedded = match v6.segments() {
            [0, 0, 0, 0, 0, 0, high, low] if high != 0 => Some((high, low)),
            [0, 0, 0, 0, 0, 0xffff, high, low]
            | [0, 0, 0, 0, 0xffff, 0, high, low]
            | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
            | [0x64, 0xff9b, 1, _, _, _, high, low]
            | [_, _, _, _, 0 | 0x200, 0x5efe, high, low]
            | [0x2002, high, low, ..] => Some((high, low)),
            [0x2001, 0, _, _, _, _, high, low] => Some((!high, !low)),
            _ => None,
        };
        let v4 = embedded.map(|(high, low)| (u32::from(high) << 16) | u32::from(low));
        forms.extend(v4.map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))));
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Vec<Network> {
        texts.iter().map(|text| Network::parse(text).unwrap()).collect()
    }

    fn objects(outbound: &Outbound, address: &str) -> bool {
        outbound.objection(address.parse().unwrap()).is_some()
    }

    #[test]
    fn what_no_job_has_business_with_is_refused_in_every_spelling() {
        for address in [
            "169.254.169.254",
            "169.254.170.2",
            "169.254.0.0",
            "169.254.255.255",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "239.255.255.255",
            "255.255.255.255",
            "240.0.0.1",
            "::",
            "fe80::1",
            "febf::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "ff02::1",
            "::ffff:169.254.169.254",
            "::ffff:0.0.0.0",
            "::169.254.169.254",
            "64:ff9b::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "::ffff:0:169.254.169.254",
            "64:ff9b:1::169.254.169.254",
            "64:ff9b:1:fffe::169.254.169.254",
            // Teredo: the address is inverted.
            "2001:0:102:304::5601:5601",
            "2001:db8::5efe:169.254.169.254",
            "fe80::200:5efe:169.254.169.254",
        ] {
            assert!(objects(&Outbound::default(), address), "{address}");
        }
    }

    #[test]
    fn where_people_run_their_services_is_open() {
        for address in [
            "127.0.0.1",
            "::1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "8.8.8.8",
            "169.253.255.255",
            "169.255.0.0",
            "223.255.255.255",
            "2001:db8::1",
            "fd12:3456::1",
            "fec0::1",
            "::ffff:127.0.0.1",
            "64:ff9b::8.8.8.8",
            "2001:db8::5efe:8.8.8.8",
            "2001:0:102:304::f7f7:f7f7",
        ] {
            assert!(!objects(&Outbound::default(), address), "{address}");
        }
    }

    #[test]
    fn a_site_tightens_and_opens_and_what_it_opens_wins() {
        let outbound = Outbound {
            allow: networks(&["10.1.0.0/16", "169.254.169.254"]),
            deny: networks(&["10.0.0.0/8", "127.0.0.0/8", "::1", "2001:db8::/32"]),
        };
        for (address, refused) in [
            ("10.0.0.1", true),
            ("10.1.0.1", false),
            ("169.254.169.254", false),
            ("169.254.169.253", true),
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("::1", true),
            ("2001:db8:1::", true),
            ("192.168.0.1", false),
        ] {
            assert_eq!(objects(&outbound, address), refused, "{address}");
        }
        let only = Outbound {
            allow: networks(&["203.0.113.0/24"]),
            deny: networks(&["0.0.0.0/0", "::/0"]),
        };
        assert!(!objects(&only, "203.0.113.9"));
        assert!(objects(&only, "8.8.8.8") && objects(&only, "2001:db8::1"));
        let said = only.objection("8.8.8.8".parse().unwrap()).unwrap();
        assert_eq!(said, "is in 0.0.0.0/0, which `engine.outbound.deny` names");
    }

    #[test]
    fn a_block_that_cannot_be_read_is_pointed_at() {
        for (text, span, message) in [
            ("metadata", 0..8, "`metadata` is not an IP address"),
            ("10.0.0/8", 0..6, "`10.0.0` is not an IP address"),
            ("10.0.0.0/33", 9..11, "`33` is not a number from 0 to 32"),
            ("fd00::/129", 7..10, "`129` is not a number from 0 to 128"),
            ("fd00::/", 7..7, "`` is not a number from 0 to 128"),
        ] {
            let error = Network::parse(text).unwrap_err();
            assert_eq!((error.span, error.message.as_str()), (span, message), "{text}");
        }
        assert_eq!(Network::parse("fd00::/8").unwrap().to_string(), "fd00::/8");
    }
}
