//! Listeners: who waits for connections at a local address.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::endpoint::Endpoint;
use super::{ConnectionManager, Connector, Offer};
use crate::error::Error;
use crate::lock;

/// Called with a new connector for each request. It is accepted, rejected, or dropped, which rejects it.
pub type RequestCallback = Box<dyn Fn(Arc<Connector>) + Send + Sync>;

/// A listener. Dropping it refuses whoever comes; its address is free when the connectors that it made are gone as well.
pub struct Listener {
    manager: Arc<ConnectionManager>,
    on_request: RequestCallback,
    endpoint: Mutex<Option<Arc<Endpoint>>>,
    is_paused: AtomicBool,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({:?})", self.address())
    }
}

impl Listener {
    pub(super) fn new(manager: &Arc<ConnectionManager>, on_request: RequestCallback) -> Arc<Self> {
        Arc::new(Self { manager: Arc::clone(manager), on_request, endpoint: Mutex::default(), is_paused: AtomicBool::new(false) })
    }

    /// Listens at `address`; port 0: a free one, see [`Listener::address`].
    ///
    /// Fails with [`Error::ConnectorUsed`] if it listens already, [`Error::NotOurAddress`], [`Error::AddressInUse`], or [`Error::OutOfPorts`].
    pub fn listen(self: &Arc<Self>, address: SocketAddr) -> Result<(), Error> {
        let mut own = lock(&self.endpoint);
        if own.is_some() {
            return Err(Error::ConnectorUsed { state: "a listener that listens" });
        }
        let endpoint = self.manager.take_endpoint(address)?;
        lock(&self.manager.listeners).insert(endpoint.address(), Arc::downgrade(self));
        *own = Some(endpoint);
        Ok(())
    }

    /// Returns where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        lock(&self.endpoint).as_ref().map(|endpoint| endpoint.address())
    }

    /// While paused, whoever comes is refused as if there were no listener.
    pub fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Release);
    }

    /// Takes a request. Returns whether somebody has heard of it.
    pub(super) fn request(&self, source: SocketAddr, to: SocketAddr, offer: Offer) -> bool {
        if self.is_paused.load(Ordering::Acquire) {
            return false;
        }
        let Some(endpoint) = lock(&self.endpoint).clone() else { return false };
        let connector = self.manager.connector();
        connector.requested(endpoint, source, to, offer);
        (self.on_request)(connector);
        true
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(address) = self.address() {
            lock(&self.manager.listeners).remove(&address);
        }
    }
}
