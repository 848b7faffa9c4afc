//! Local addresses and ports: taken by a listener, a connector or a shared endpoint, free when the last holder is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use crate::error::Error;
use crate::lock;

/// First port that is handed out for port 0.
const FIRST_PORT: u16 = 49_152;
/// Last one.
const LAST_PORT: u16 = 65_535;

/// Endpoints of an adapter that are in use, with the peers that each is connected to.
#[derive(Debug, Default)]
pub(super) struct Endpoints(Mutex<BTreeMap<SocketAddr, BTreeSet<SocketAddr>>>);

/// A local address and port. Its last holder gives it back.
#[derive(Debug)]
pub(super) struct Endpoint {
    all: Arc<Endpoints>,
    address: SocketAddr,
}

impl Endpoint {
    /// Takes an address; port 0: the first free one.
    pub(super) fn take(all: &Arc<Endpoints>, mut address: SocketAddr) -> Result<Arc<Self>, Error> {
        let mut used = lock(&all.0);
        if address.port() == 0 {
            let in_use = used.range(SocketAddr::new(address.ip(), FIRST_PORT)..=SocketAddr::new(address.ip(), LAST_PORT));
            // Those in use come in order, so the first one that is not the next port leaves a gap.
            let free = (FIRST_PORT..=LAST_PORT).zip(in_use).take_while(|(port, (other, _))| other.port() == *port).count();
            let free =
                u16::try_from(usize::from(FIRST_PORT) + free).map_err(|_| Error::OutOfPorts { first: FIRST_PORT, last: LAST_PORT })?;
            address.set_port(free);
        } else if used.contains_key(&address) {
            return Err(Error::AddressInUse { address });
        }
        used.insert(address, BTreeSet::new());
        Ok(Arc::new(Self { all: Arc::clone(all), address }))
    }

    /// Returns address and port.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Notes a connection to `peer`, which may exist once.
    pub(super) fn enter_peer(&self, peer: SocketAddr) -> Result<(), Error> {
        let mut used = lock(&self.all.0);
        match used.get_mut(&self.address).map(|peers| peers.insert(peer)) {
            Some(false) => Err(Error::ConnectionExists { local: self.address, peer }),
            _ => Ok(()),
        }
    }

    /// Forgets a connection.
    pub(super) fn leave_peer(&self, peer: SocketAddr) {
        if let Some(peers) = lock(&self.all.0).get_mut(&self.address) {
            peers.remove(&peer);
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        lock(&self.all.0).remove(&self.address);
    }
}

/// A local address for several connections.
#[derive(Clone, Debug)]
pub struct SharedEndpoint(Arc<Endpoint>);

impl SharedEndpoint {
    pub(super) fn new(endpoint: Arc<Endpoint>) -> Self {
        Self(endpoint)
    }

    pub(super) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.0
    }

    /// Returns address and port.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    #[test]
    fn an_address_is_free_when_its_last_holder_is_gone() {
        let all = Arc::default();
        let first = Endpoint::take(&all, at(445)).unwrap();
        let second = Arc::clone(&first);
        assert!(matches!(Endpoint::take(&all, at(445)), Err(Error::AddressInUse { .. })));
        drop(first);
        assert!(Endpoint::take(&all, at(445)).is_err(), "an accepted connection still holds it");
        drop(second);
        assert!(Endpoint::take(&all, at(445)).is_ok());
    }

    #[test]
    fn port_0_takes_each_port_of_the_range_once() {
        let all = Arc::default();
        let taken: Vec<_> = std::iter::from_fn(|| Endpoint::take(&all, at(0)).ok()).collect();
        assert_eq!((taken.len(), taken[0].address().port(), taken[16_383].address().port()), (16_384, 49_152, 65_535));
        assert!(matches!(Endpoint::take(&all, at(0)), Err(Error::OutOfPorts { .. })));
        // The first one that is free again, of this address alone.
        let mut taken = taken;
        for index in [16_383, 4_000, 77] {
            drop(taken.remove(index));
        }
        assert_eq!(Endpoint::take(&all, at(0)).unwrap().address().port(), 49_152 + 77);
        let other = SocketAddr::from(([192, 0, 2, 2], 0));
        assert_eq!(Endpoint::take(&all, other).unwrap().address().port(), 49_152);
    }

    #[test]
    fn two_connections_of_an_endpoint_differ_in_the_peer() {
        let all = Arc::default();
        let endpoint = Endpoint::take(&all, at(5)).unwrap();
        endpoint.enter_peer(at(6)).unwrap();
        endpoint.enter_peer(at(7)).unwrap();
        assert!(matches!(endpoint.enter_peer(at(6)), Err(Error::ConnectionExists { .. })));
        endpoint.leave_peer(at(6));
        endpoint.enter_peer(at(6)).unwrap();
    }
}
