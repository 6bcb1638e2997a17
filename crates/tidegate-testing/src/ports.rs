//! Ports that stay free.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

const FIRST: u16 = 12_000;
/// So few that a member of a cluster finds the port that it takes beside its own, 10,000 higher, below those of the
/// system too.
const COUNT: u16 = 10_000;

/// A port that nobody listens on, and that stays free until whoever asked for it takes it: it is below those that the
/// system hands out to servers and outgoing connections, and no two callers in this process get the same.
///
/// # Panics
///
/// Where a process has asked for all of them.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Another process at the same time starts elsewhere.
    let start = (std::process::id().wrapping_mul(0x9E37_79B1) >> 16) as u16 % COUNT;
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(step < COUNT, "there is no free port");
        let port = FIRST + (start + step) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// The same on this machine.
pub fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_gets_a_port_of_its_own_that_the_system_gives_to_nobody() {
        let ports: Vec<u16> = (0..100).map(|_| free_port()).collect();
        let mut distinct = ports.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), ports.len());
        let lowest_of_the_system = 32_768;
        assert!(ports.iter().all(|port| port + 10_000 < lowest_of_the_system), "{ports:?}");
    }
}
