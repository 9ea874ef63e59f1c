//! The addresses of names in a `hosts` file.

use std::collections::HashMap;
use std::net::IpAddr;

use super::MOST_ADDRESSES;

/// Addresses by name, in lower case.
#[derive(Debug, Default)]
pub struct Hosts(HashMap<Box<str>, Vec<IpAddr>>);

impl Hosts {
    /// Parses the lines of `hosts(5)`; invalid ones are skipped.
    pub fn parse(text: &str) -> Self {
        let mut hosts = Self::default();
        for line in text.lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(Ok(address)) = words.next().map(str::parse::<IpAddr>) else { continue };
            for name in words {
                let addresses = hosts.0.entry(name.to_ascii_lowercase().into()).or_default();
                if addresses.len() < MOST_ADDRESSES && !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        hosts
    }

    /// The addresses of a name in lower case, without a trailing dot.
    pub fn get(&self, name: &str) -> Option<&[IpAddr]> {
        self.0.get(name).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_the_addresses_of_all_its_lines() {
        let hosts = Hosts::parse(
            "# 192.0.2.9 commented\n127.0.0.1\tlocalhost loop # rest\n\n  ::1 localhost Loop\n\
             192.0.2.1 a.example\n192.0.2.1 a.example\nfe80::1%lo0 localhost\nnot.an.address b.example\n192.0.2.2\n",
        );
        let get = |name| hosts.get(name).map(|addresses| addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>());
        assert_eq!(get("localhost").unwrap(), ["127.0.0.1", "::1"]);
        assert_eq!(get("loop").unwrap(), ["127.0.0.1", "::1"]);
        assert_eq!(get("a.example").unwrap(), ["192.0.2.1"]);
        assert_eq!((get("b.example"), get("commented"), get("rest")), (None, None, None));
    }

    #[test]
    fn a_name_has_a_bounded_number_of_addresses() {
        let text = (0..200).map(|last| format!("192.0.2.{last} many")).collect::<Vec<_>>().join("\n");
        assert_eq!(Hosts::parse(&text).get("many").unwrap().len(), MOST_ADDRESSES);
    }
}
