//! Where somebody else's addresses may lead: names and numbers that tenants write must not reach what is around the server.
//!
//! By default only public addresses are allowed. What a provider allows beyond that, it lists; and what it denies
//! although it is public: its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A set of addresses with a common beginning: `10.0.0.0/8`, `::1/128`, `192.0.2.7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_len: u8,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is no network; write it like 10.0.0.0/8")]
pub struct NetworkError(String);

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let error = || NetworkError(text.to_owned());
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len.parse::<u8>().map_err(|_| error())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix_len = len.unwrap_or(bits);
        if prefix_len > bits {
            return Err(error());
        }
        // Addresses are looked at as what they are: an IPv4 network is one however it is written.
        let plain = address.to_canonical();
        match prefix_len.checked_sub(96).filter(|_| plain.is_ipv4() && address.is_ipv6()) {
            Some(prefix_len) => Ok(Network { address: plain, prefix_len }),
            None => Ok(Network { address, prefix_len }),
        }
    }
}

impl Network {
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        };
        let ((own, own_len), (other, other_len)) = (bits(self.address), bits(address));
        let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix_len)).unwrap_or(0);
        own_len == other_len && (own ^ other) & mask == 0
    }
}

/// Which addresses may be connected to.
#[derive(Clone, Debug, Default)]
pub struct Egress {
    pub allowed: Vec<Network>,
    /// Goes before everything else.
    pub denied: Vec<Network>,
}

impl Egress {
    pub fn permits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let is_denied = |address: IpAddr| self.denied.iter().any(|network| network.contains(address));
        let carries_denied = match address {
            IpAddr::V6(address) => carried(address).any(|inner| is_denied(IpAddr::V4(inner))),
            IpAddr::V4(_) => false,
        };
        if is_denied(address) || carries_denied {
            return false;
        }
        is_public(address) || self.allowed.iter().any(|network| network.contains(address))
    }
}

/// Whether an address is anybody's to connect to. One that carries another inside is judged by that too.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19))
        // Where a large cloud answers its own machines about themselves, although it looks like anybody's.
        || address == Ipv4Addr::new(168, 63, 129, 16);
    !special
}

/// The IPv4 addresses that may be inside: what translators make of one, and tunnels. Where a translator's network leaves open how
/// it puts them there, all ways count.
fn carried(address: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let bits = address.to_bits();
    let segments = address.segments();
    // The 32 bits that begin after so many.
    let after = |skipped: u32| Some(low(bits >> (96 - skipped)));
    // The same around the eight bits 64 to 71, which stay free.
    let around = |skipped: u32| {
        let (before, behind) = (64 - skipped, skipped - 32);
        let first = low(bits >> 64) & low((1_u128 << before) - 1);
        Some((first << behind) | (low(bits << 72 >> 96) >> (32 - behind)))
    };
    let inner: [Option<u32>; 3] = match segments {
        // Translators: the well-known network (RFC 6052), the local one (RFC 8215), and that of stateless ones (RFC 2765).
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => [after(96), None, None],
        [0x64, 0xff9b, 1, ..] => [after(96), around(48), around(56)],
        [0, 0, 0, 0, 0xffff, 0, ..] => [after(96), None, None],
        [0, 0, 0, 0, 0, 0, ..] => [after(96), None, None],
        // 6to4; Teredo, which has the client's turned around.
        [0x2002, ..] => [after(16), None, None],
        [0x2001, 0, ..] => [after(32), Some(!low(bits)), None],
        // ISATAP.
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => [after(96), None, None],
        _ => [None; 3],
    };
    inner.into_iter().flatten().map(Ipv4Addr::from_bits)
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
fn low(bits: u128) -> u32 {
    bits as u32
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let special = address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_unique_local()
        || address.is_unicast_link_local()
        || (segments[0] & 0xffc0) == 0xfec0
        || segments[..3] == [0x64, 0xff9b, 1]
        || segments[..2] == [0x2001, 0]
        || segments[..2] == [0x2001, 0xdb8]
        // For examples (RFC 9637), and for networks that steer packets within themselves (RFC 9602).
        || (segments[0] == 0x3fff && segments[1] < 0x1000)
        || segments[0] == 0x5f00;
    !special && carried(address).all(is_public_v4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_public_or_listed_is_reached() {
        let rows = [
            ("93.184.216.34", true),
            ("127.0.0.1", false),
            ("10.1.2.3", false),
            ("172.16.0.1", false),
            ("192.168.1.1", false),
            ("169.254.169.254", false),
            ("168.63.129.16", false),
            ("::ffff:168.63.129.16", false),
            ("3fff::1", false),
            ("5f00::1", false),
            ("100.64.0.1", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("2606:4700::1", true),
            ("::1", false),
            ("::", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("fd00:ec2::254", false),
            ("::ffff:10.0.0.1", false),
            ("::10.0.0.1", false),
            ("64:ff9b::7f00:1", false),
            ("64:ff9b::5db8:d822", true),
            ("2002:a00:1::", false),
            ("::ffff:0:10.0.0.1", false),
            ("::ffff:0:93.184.216.34", true),
            ("2606:4700::5efe:10.0.0.1", false),
            ("2606:4700::200:5efe:7f00:1", false),
            ("2606:4700::5efe:93.184.216.34", true),
        ];
        for (address, expected) in rows {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(Egress::default().permits(address), expected, "{address}");
        }
        let networks =
            |all: &[&str]| -> Vec<Network> { all.iter().map(|one| one.parse().unwrap()).collect() };
        let egress = Egress {
            allowed: networks(&["10.1.0.0/16", "::1", "64:ff9b:1::/48", "2001::/32", "::ffff:10.3.0.0/112"]),
            denied: networks(&["93.184.216.0/24", "10.1.9.0/24", "2606:4700::/32", "::ffff:10.3.9.0/120"]),
        };
        for (address, expected) in [
            ("93.184.216.34", false),
            ("93.184.217.1", true),
            ("64:ff9b::5db8:d822", false),
            ("2002:5db8:d822::", false),
            ("::ffff:93.184.216.34", false),
            ("2606:4700::1", false),
            ("2606:4701::1", true),
            ("10.1.9.1", false),
            ("10.1.2.3", true),
            ("10.2.0.1", false),
            ("::1", true),
            ("::ffff:10.1.0.1", true),
            ("127.0.0.1", false),
            ("::ffff:0:93.184.216.34", false),
            ("2606:4701::5efe:93.184.216.34", false),
            // The local network of translators, in each of the ways it may be used: 10.1.9.1 inside, and 10.1.8.1.
            ("64:ff9b:1::10.1.9.1", false),
            ("64:ff9b:1::10.1.8.1", true),
            ("64:ff9b:1:a01:9:100::", false),
            ("64:ff9b:1:a01:8:100::", true),
            ("64:ff9b:1:0a:1:901::", false),
            ("64:ff9b:1:0a:1:801::", true),
            // Teredo: a server at 93.184.216.34, or a client at 10.1.9.1.
            ("2001:0:5db8:d822::", false),
            ("2001:0:5db8:d922::f5fe:f6fe", false),
            ("2001:0:5db8:d922::f5fe:f7fe", true),
            ("10.3.1.1", true),
            ("10.3.9.1", false),
        ] {
            assert_eq!(egress.permits(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn networks_are_read() {
        for wrong in ["", "10.0.0.0/33", "x", "10.0.0.0/", "::/129"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
        let all: Network = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("8.8.8.8".parse().unwrap()) && !all.contains("::1".parse().unwrap()));
    }
}
