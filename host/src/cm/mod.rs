//! Connections: listeners, connectors, and the messages between two adapters of one process.
//!
//! | file | holds |
//! |---|---|
//! | [`Exchange`] and [`ConnectionManager`], here | who finds whom, and the messages |
//! | `endpoint` | local addresses and ports, and who holds them |
//! | [`listener`] | who waits for connections |
//! | [`connector`] | one connection, from the first message to the last |
//!
//! The messages are those of InfiniBand's connection management, by meaning: a request, its answer, the answer's
//! confirmation, a rejection, a farewell with its reply, and an abort. They carry what two QPs must know of each
//! other (QPN, first PSN, path MTU, addresses), which travels inside the process: both adapters share an [`Exchange`].
//! On the wire there is none of it.
//!
//! ```text
//!   active                                    passive
//!   connect ───────────── Request ──────────► callback of the listener
//!      done ◄──────────── Accepted ────────── accept: QP to RTR
//!   complete_connect: QP to RTS ── Ready ───► QP to RTS; done
//! ```
//!
//! Every message is worked off, and every callback called, inside [`Adapter::process_events`] of the adapter that
//! it is for. Nothing here waits for a clock: an answer that never comes leaves a request pending until its connector is closed.

pub mod connector;
mod endpoint;
pub mod listener;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

pub use connector::{ConnectionData, Connector, DisconnectCallback, Source};
pub use endpoint::SharedEndpoint;
pub use listener::{Listener, RequestCallback};

use self::endpoint::Endpoints;
use crate::adapter::Adapter;
use crate::connect::QpAddress;
use crate::error::Error;
use crate::lock;

/// Most private data of a request for a connection: what a `REQ` of the RDMA connection manager leaves to the consumer
/// (92 bytes less a header of 36, IBTA annex A11).
pub const MAX_CALLER_DATA: usize = 56;
/// Most private data of an answer, and of a rejection: what a `REJ` carries (IBTA vol. 1, 12.6.7).
pub const MAX_CALLEE_DATA: usize = 148;

/// Where the adapters of a process find each other.
#[derive(Debug, Default)]
pub struct Exchange {
    managers: Mutex<BTreeMap<IpAddr, Weak<ConnectionManager>>>,
    /// Number of the last connector. A number is used once: a message may come when its connector is gone, and the adapter opened anew.
    last_connector: AtomicU64,
}

impl Exchange {
    /// Returns one without adapters.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    fn at(&self, ip: IpAddr) -> Option<Arc<ConnectionManager>> {
        lock(&self.managers).get(&ip)?.upgrade()
    }

    /// Hands a message to the adapter at `to`. Returns whether there is one.
    fn send(&self, to: IpAddr, message: Message) -> bool {
        let Some(manager) = self.at(to) else { return false };
        let receiver = Arc::clone(&manager);
        manager.adapter.defer(move || receiver.receive(message));
        true
    }
}

/// Number of a connector, unique in its exchange.
type ConnectorId = u64;

/// A connector of another adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Remote {
    ip: IpAddr,
    id: ConnectorId,
}

/// READs and atomics under way: answered at once, outstanding at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadLimits {
    /// Answered at once.
    pub inbound: u32,
    /// Outstanding at once.
    pub outbound: u32,
}

impl ReadLimits {
    /// Returns what is left when the peer has these limits: mine in is at most its out, mine out at most its in.
    fn against(self, peer: Self) -> Self {
        Self { inbound: self.inbound.min(peer.outbound), outbound: self.outbound.min(peer.inbound) }
    }
}

/// What one end tells the other when it wants a connection, or agrees to one.
#[derive(Clone, Debug)]
struct Offer {
    from: Remote,
    qp: QpAddress,
    mtu_bytes: u32,
    limits: ReadLimits,
    private_data: Vec<u8>,
}

/// What adapters tell each other.
#[derive(Clone, Debug)]
enum Message {
    /// Somebody wants a connection with whoever listens at `to`.
    Request { to: SocketAddr, source: SocketAddr, offer: Offer },
    /// The passive side agrees.
    Accepted { to: ConnectorId, offer: Offer },
    /// The other side, or whoever should listen, does not.
    Rejected { to: ConnectorId, private_data: Vec<u8> },
    /// The active side is ready.
    Ready { to: ConnectorId },
    /// The other side has ended the connection.
    Farewell { to: ConnectorId },
    /// And this side knows.
    FarewellReply { to: ConnectorId },
    /// The connection, or the attempt at one, is over without a farewell.
    Aborted { to: ConnectorId },
}

/// What became of the connections of an adapter since it was opened, as `NDIS_NDK_PERFORMANCE_COUNTERS` asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Connections that this side has asked for.
    pub connected: u64,
    /// Connections that this side has accepted.
    pub accepted: u64,
    /// Attempts of either side that came to nothing: refused, given up, or closed. One begins with a [`Connector::connect`] that pends, or with a request
    /// that a listener gets.
    pub failed: u64,
    /// Connections that were over before this side had disconnected or closed them, or had heard of the peer's farewell.
    pub broken: u64,
    /// Connections that are there now.
    pub active: u64,
}

/// The connections of an adapter.
#[derive(Debug)]
pub struct ConnectionManager {
    adapter: Arc<Adapter>,
    exchange: Arc<Exchange>,
    endpoints: Arc<Endpoints>,
    listeners: Mutex<BTreeMap<SocketAddr, Weak<Listener>>>,
    connectors: Mutex<BTreeMap<ConnectorId, Weak<Connector>>>,
    counts: Mutex<ConnectionCounts>,
}

impl ConnectionManager {
    /// Enters the adapter's addresses in `exchange`, in place of a manager that was there.
    pub fn new(adapter: &Arc<Adapter>, exchange: &Arc<Exchange>) -> Arc<Self> {
        let manager = Arc::new(Self {
            adapter: Arc::clone(adapter),
            exchange: Arc::clone(exchange),
            endpoints: Arc::default(),
            listeners: Mutex::default(),
            connectors: Mutex::default(),
            counts: Mutex::default(),
        });
        let mut managers = lock(&exchange.managers);
        for ip in manager.addresses() {
            managers.insert(ip, Arc::downgrade(&manager));
        }
        drop(managers);
        manager
    }

    /// Returns the adapter.
    pub fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    /// Returns what became of the connections so far.
    pub fn counts(&self) -> ConnectionCounts {
        *lock(&self.counts)
    }

    /// Creates a connector that is not connected.
    pub fn connector(self: &Arc<Self>) -> Arc<Connector> {
        let id = self.exchange.last_connector.fetch_add(1, Ordering::Relaxed) + 1;
        let connector = Connector::new(self, id);
        lock(&self.connectors).insert(id, Arc::downgrade(&connector));
        connector
    }

    /// Creates a listener that does not listen yet. `on_request` gets a connector for each request that comes.
    pub fn listener(self: &Arc<Self>, on_request: RequestCallback) -> Arc<Listener> {
        Listener::new(self, on_request)
    }

    /// Takes a local address for several connections. Port 0: a free one.
    ///
    /// Fails with [`Error::NotOurAddress`], [`Error::AddressInUse`], or [`Error::OutOfPorts`].
    pub fn shared_endpoint(self: &Arc<Self>, address: SocketAddr) -> Result<SharedEndpoint, Error> {
        Ok(SharedEndpoint::new(self.take_endpoint(address)?))
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let config = self.adapter.config();
        config.ipv4.map(IpAddr::V4).into_iter().chain(config.ipv6.map(IpAddr::V6))
    }

    fn take_endpoint(&self, address: SocketAddr) -> Result<Arc<endpoint::Endpoint>, Error> {
        if !self.addresses().any(|own| own == address.ip()) {
            return Err(Error::NotOurAddress { address: address.ip() });
        }
        endpoint::Endpoint::take(&self.endpoints, address)
    }

    fn connector_of(&self, id: ConnectorId) -> Option<Arc<Connector>> {
        lock(&self.connectors).get(&id)?.upgrade()
    }

    fn forget(&self, id: ConnectorId) {
        lock(&self.connectors).remove(&id);
    }

    /// Works off a message. One for a connector that is gone by now has nothing to say any more, but a farewell is answered.
    fn receive(self: &Arc<Self>, message: Message) {
        match message {
            Message::Request { to, source, offer } => {
                let listener = lock(&self.listeners).get(&to).and_then(Weak::upgrade);
                let from = offer.from;
                if !listener.is_some_and(|listener| listener.request(source, to, offer)) {
                    self.exchange.send(from.ip, Message::Rejected { to: from.id, private_data: Vec::new() });
                }
            }
            Message::Accepted { to, offer } => {
                let from = offer.from;
                if !self.connector_of(to).is_some_and(|connector| connector.accepted(offer)) {
                    self.exchange.send(from.ip, Message::Aborted { to: from.id });
                }
            }
            Message::Rejected { to, private_data } => self.tell(to, |connector| connector.rejected(private_data)),
            Message::Ready { to } => self.tell(to, Connector::peer_is_ready),
            Message::Farewell { to } => self.tell(to, Connector::peer_said_farewell),
            Message::FarewellReply { to } => self.tell(to, Connector::farewell_answered),
            Message::Aborted { to } => self.tell(to, Connector::aborted),
        }
    }

    fn tell(&self, id: ConnectorId, what: impl FnOnce(&Arc<Connector>)) {
        if let Some(connector) = self.connector_of(id) {
            what(&connector);
        }
    }
}

impl Drop for ConnectionManager {
    fn drop(&mut self) {
        lock(&self.exchange.managers).retain(|_, manager| manager.strong_count() > 0);
    }
}
