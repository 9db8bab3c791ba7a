//! Blocks of addresses, as `10.96.0.0/16`.

use std::net::IpAddr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    first: IpAddr,
    prefix: u32,
}

impl Block {
    pub(super) fn parse(text: &str) -> Option<Block> {
        let (address, prefix) = text.split_once('/')?;
        let (first, prefix) = (address.parse::<IpAddr>().ok()?, prefix.parse().ok()?);
        (prefix <= width(first)).then_some(Block { first, prefix })
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4()
            && head(self.first, self.prefix) == head(address, self.prefix)
    }

    /// Whether all of another block is in this one.
    pub(super) fn covers(&self, other: &Block) -> bool {
        self.prefix <= other.prefix && self.contains(other.first)
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The first bits of an address.
fn head(address: IpAddr, bits: u32) -> u128 {
    let number = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    number.checked_shr(width(address) - bits).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_contain() {
        #[track_caller]
        fn check(block: &str, address: &str, expected: bool) {
            assert_eq!(Block::parse(block).unwrap().contains(address.parse().unwrap()), expected);
        }
        check("10.96.0.0/16", "10.96.255.255", true);
        check("10.96.0.0/16", "10.97.0.0", false);
        check("0.0.0.0/0", "255.1.2.3", true);
        check("::/0", "fd00::1", true);
        check("0.0.0.0/0", "fd00::1", false);
        check("10.0.0.7/32", "10.0.0.7", true);
        check("fd00::/108", "fd00::f:ffff", true);
        check("fd00::/108", "fd00::10:0", false);
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "x/8", "10.0.0.0/-1"] {
            assert_eq!(Block::parse(bad), None, "{bad}");
        }
        let block = |text| Block::parse(text).unwrap();
        assert!(block("10.0.0.0/8").covers(&block("10.96.0.0/16")));
        assert!(block("10.96.0.0/16").covers(&block("10.96.0.0/16")));
        assert!(!block("10.96.0.0/16").covers(&block("10.0.0.0/8")));
    }
}
