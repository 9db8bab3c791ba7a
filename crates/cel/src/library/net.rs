//! IP addresses and networks. Neither zones nor IPv4 addresses inside IPv6 are taken.

use std::net::IpAddr;

use super::opaque::{OpaqueValue, opaque_arg, text};
use crate::cost::Cost;
use crate::meter::{Fault, Meter, Outcome};
use crate::overload::{Overload, global, member};
use crate::value::Value;

pub(super) fn table() -> Vec<Overload> {
    vec![
        global("string_to_ip", "ip(string) -> ip", to_ip, Cost::Parse),
        member("ip_family", "ip.family() -> int", family, Cost::One),
        global("ip_is_canonical", "ip.isCanonical(string) -> bool", is_canonical, Cost::ParseTwice),
        member("ip_is_unspecified", "ip.isUnspecified() -> bool", is_unspecified, Cost::One),
        member("ip_is_loopback", "ip.isLoopback() -> bool", is_loopback, Cost::One),
        member(
            "ip_is_link_local_multicast",
            "ip.isLinkLocalMulticast() -> bool",
            is_link_local_multicast,
            Cost::One,
        ),
        member(
            "ip_is_link_local_unicast",
            "ip.isLinkLocalUnicast() -> bool",
            is_link_local_unicast,
            Cost::One,
        ),
        member("ip_is_global_unicast", "ip.isGlobalUnicast() -> bool", is_global_unicast, Cost::One),
        global("is_ip", "isIP(string) -> bool", is_ip, Cost::Parse),
        global("ip_to_string", "string(ip) -> string", ip_to_string, Cost::One),
        global("string_to_cidr", "cidr(string) -> cidr", to_cidr, Cost::Parse),
        member(
            "cidr_contains_ip_string",
            "cidr.containsIP(string) -> bool",
            contains_ip,
            Cost::ContainsIp { parse: true },
        ),
        member(
            "cidr_contains_ip_ip",
            "cidr.containsIP(ip) -> bool",
            contains_ip,
            Cost::ContainsIp { parse: false },
        ),
        member(
            "cidr_contains_cidr_string",
            "cidr.containsCIDR(string) -> bool",
            contains_cidr,
            Cost::ContainsCidr { parse: true },
        ),
        member(
            "cidr_contains_cidr",
            "cidr.containsCIDR(cidr) -> bool",
            contains_cidr,
            Cost::ContainsCidr { parse: false },
        ),
        member("cidr_ip", "cidr.ip() -> ip", cidr_ip, Cost::One),
        member("cidr_prefix_length", "cidr.prefixLength() -> int", prefix_length, Cost::One),
        member("cidr_masked", "cidr.masked() -> cidr", masked, Cost::One),
        global("is_cidr", "isCIDR(string) -> bool", is_cidr, Cost::Parse),
        global("cidr_to_string", "string(cidr) -> string", cidr_to_string, Cost::One),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(IpAddr);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Address {
    pub(super) fn bytes(self) -> usize {
        if self.0.is_ipv4() { 4 } else { 16 }
    }

    fn parse(text: &str) -> Result<Address, String> {
        let fail = |why: String| {
            format!(
                "IP Address {} parse error during conversion from string: ParseAddr({}): {why}",
                quoted(text),
                quoted(text)
            )
        };
        if let Some((plain, zone)) = text.split_once('%') {
            if plain.parse::<std::net::Ipv6Addr>().is_ok() && !zone.is_empty() {
                return Err(format!("IP address {} with zone value is not allowed", quoted(text)));
            }
            return Err(fail("unable to parse IP".into()));
        }
        let address: IpAddr = text.parse().map_err(|_| fail(address_problem(text)))?;
        if matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some()) {
            return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quoted(text)));
        }
        Ok(Address(address))
    }
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// What Go would say is wrong with the text of an address.
fn address_problem(text: &str) -> String {
    let first = text.find(['.', ':']);
    match first.map(|at| text.as_bytes()[at]) {
        None => "unable to parse IP".into(),
        Some(b':') => match text.find(":::") {
            Some(at) => {
                let rest = quoted(&text[at + 2..]);
                format!("each colon-separated field must have at least one digit (at {rest})")
            }
            None => "unable to parse IP".into(),
        },
        Some(_) => {
            let fields: Vec<&str> = text.split('.').collect();
            for (at, field) in fields.iter().enumerate() {
                let broken = field.find(|char: char| !char.is_ascii_digit());
                if let Some(broken) = broken {
                    let start: usize = fields[..at].iter().map(|field| field.len() + 1).sum();
                    return format!("unexpected character (at {})", quoted(&text[start + broken..]));
                }
                if at == 4 {
                    return "IPv4 address too long".into();
                }
                match *field {
                    "" => {
                        let start: usize = fields[..at].iter().map(|field| field.len() + 1).sum();
                        let rest = quoted(&text[start..]);
                        return format!("IPv4 field must have at least one digit (at {rest})");
                    }
                    field if field.len() > 1 && field.starts_with('0') => {
                        return "IPv4 field has octet with leading zero".into();
                    }
                    field if field.parse::<u8>().is_err() => return "IPv4 field has value >255".into(),
                    _ => {}
                }
            }
            "IPv4 address too short".into()
        }
    }
}

impl Network {
    pub(super) fn bytes(self) -> usize {
        usize::from(self.bits.div_ceil(8))
    }

    fn parse(text: &str) -> Result<Network, String> {
        const WHAT: &str = "network address parse error during conversion from string";
        let fail = |why: &str| format!("{WHAT}: netip.ParsePrefix({}): {why}", quoted(text));
        let (address, bits) = text.rsplit_once('/').ok_or_else(|| fail("no '/'"))?;
        if address.contains('%') {
            return Err(fail("IPv6 zones cannot be present in a prefix"));
        }
        let address: IpAddr = address
            .parse()
            .map_err(|_| fail(&format!("ParseAddr({}): {}", quoted(address), address_problem(address))))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let digits = bits.bytes().all(|byte| byte.is_ascii_digit())
            && !bits.is_empty()
            && (bits == "0" || !bits.starts_with('0'));
        if !digits {
            return Err(fail(&format!("bad bits after slash: {}", quoted(bits))));
        }
        let bits = bits
            .parse()
            .ok()
            .filter(|bits| *bits <= most)
            .ok_or_else(|| fail("prefix length out of range"))?;
        if matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some()) {
            return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quoted(text)));
        }
        Ok(Network { address, bits })
    }

    fn masked(self) -> Network {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        };
        Network { address, bits: self.bits }
    }

    fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Network { address, bits: self.bits }.masked().address == self.masked().address
    }
}

opaque_arg!(address, Ip, Address);
opaque_arg!(network, Cidr, Network);

fn made_ip<'a>(address: Address) -> Value<'a> {
    Value::opaque(OpaqueValue::Ip(address))
}

fn made_cidr<'a>(network: Network) -> Value<'a> {
    Value::opaque(OpaqueValue::Cidr(network))
}

fn to_ip<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Address::parse(text(args, 0)?).map(made_ip).map_err(Fault::error)
}

fn is_ip<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(Address::parse(text(args, 0)?).is_ok()))
}

fn is_canonical<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let text = text(args, 0)?;
    let address = Address::parse(text).map_err(Fault::error)?;
    Ok(Value::Bool(address.0.to_string() == text))
}

fn ip_to_string<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::text(address(args, 0)?.0.to_string()))
}

fn family<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Int(if address(args, 0)?.0.is_ipv4() { 4 } else { 6 }))
}

fn is_unspecified<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(address(args, 0)?.0.is_unspecified()))
}

fn is_loopback<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(address(args, 0)?.0.is_loopback()))
}

fn link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

fn link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn is_link_local_multicast<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(link_local_multicast(address(args, 0)?.0)))
}

fn is_link_local_unicast<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(link_local_unicast(address(args, 0)?.0)))
}

fn is_global_unicast<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let address = address(args, 0)?.0;
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    let special = address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || link_local_unicast(address);
    Ok(Value::Bool(!broadcast && !special))
}

fn to_cidr<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    cidr_of(text(args, 0)?).map(made_cidr)
}

fn cidr_of(text: &str) -> Result<Network, Fault> {
    Network::parse(text).map_err(|error| {
        Fault::error(format!("network address parse error during conversion from string: {error}"))
    })
}

fn is_cidr<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(Network::parse(text(args, 0)?).is_ok()))
}

fn contains_ip<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let network = network(args, 0)?;
    let inner = match args.get(1) {
        // Upstream forgets the reason here.
        Some(Value::String(text)) => Address::parse(text).map_err(|_| Fault::no_overload())?,
        _ => *address(args, 1)?,
    };
    Ok(Value::Bool(network.contains(inner.0)))
}

fn contains_cidr<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let outer = network(args, 0)?;
    let inner = match args.get(1) {
        Some(Value::String(text)) => cidr_of(text)?,
        _ => *network(args, 1)?,
    };
    Ok(Value::Bool(outer.bits <= inner.bits && outer.contains(inner.address)))
}

fn cidr_ip<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(made_ip(Address(network(args, 0)?.address)))
}

fn prefix_length<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Int(network(args, 0)?.bits.into()))
}

fn masked<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(made_cidr(network(args, 0)?.masked()))
}

fn cidr_to_string<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let network = network(args, 0)?;
    Ok(Value::text(format!("{}/{}", network.address, network.bits)))
}
