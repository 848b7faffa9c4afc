//! Connectors: one connection each, from the first message to the last.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use super::endpoint::Endpoint;
use super::{ConnectionManager, ConnectorId, Message, Offer, ReadLimits, Remote, SharedEndpoint, MAX_CALLEE_DATA, MAX_CALLER_DATA};
use crate::adapter::AdapterConfig;
use crate::command::{Callback, CloseCallback, CloseStatus, Submitted};
use crate::connect::{QpAddress, QpPeer};
use crate::error::Error;
use crate::lock;
use crate::qp::{Qp, QpFault};
use crate::QpState;

/// Called once when the peer has ended the connection, or when it is lost; not after [`Connector::disconnect`] of this side.
pub type DisconnectCallback = Box<dyn FnOnce() + Send>;

/// The local address of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// An address of the connection's own. Port 0: a free one.
    Own(SocketAddr),
    /// One that several connections have.
    Shared(&'a SharedEndpoint),
}

/// What the peer has sent along, and the limits that both ends agree on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionData {
    /// READs and atomics under way.
    pub limits: ReadLimits,
    /// Bytes of the peer's consumer.
    pub private_data: Vec<u8>,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    /// Active: the request is under way.
    Connecting,
    /// Active: the peer has agreed.
    Answered,
    /// Active: the QP is being connected.
    Completing,
    /// Passive: there is a request.
    Requested,
    /// Passive: the QP is being prepared, or the active side has not confirmed.
    Accepting,
    Connected,
    /// The peer has said farewell. Requests can still be posted, as far as NDK goes.
    PeerGone,
    /// This side has said farewell.
    Disconnecting,
    Over,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Connecting => "connecting",
            Self::Answered => "answered and not completed",
            Self::Completing => "completing",
            Self::Requested => "requested and not accepted",
            Self::Accepting => "accepting",
            Self::Connected => "connected",
            Self::PeerGone => "left by its peer",
            Self::Disconnecting => "disconnecting",
            Self::Over => "over",
        }
    }

    /// A connection is wanted, and not there.
    const fn is_attempt(self) -> bool {
        matches!(self, Self::Connecting | Self::Answered | Self::Completing | Self::Requested | Self::Accepting)
    }

    const fn is_connected(self) -> bool {
        matches!(self, Self::Connected | Self::PeerGone | Self::Disconnecting)
    }
}

/// One connection.
pub struct Connector {
    manager: Arc<ConnectionManager>,
    id: ConnectorId,
    inner: Mutex<Inner>,
}

/// A QP that belongs to one connector, until this is dropped.
struct Reserved(Arc<Qp>);

impl Reserved {
    /// Takes a QP that no connector has, and that was never connected: it serves one connection in its life.
    fn take(qp: &Arc<Qp>) -> Result<Self, Error> {
        let (qpn, state) = (qp.qpn(), qp.state());
        if state == QpState::Error && !qp.was_connected() {
            return Err(Error::NotConnected { qpn, state });
        }
        if state != QpState::Reset {
            return Err(Error::WrongState { qpn, state, needed: "RESET" });
        }
        if !qp.reserve_for_connection() {
            return Err(Error::WrongState { qpn, state, needed: "of no other connector" });
        }
        Ok(Self(Arc::clone(qp)))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.release_from_connection();
    }
}

struct Inner {
    state: State,
    endpoint: Option<Arc<Endpoint>>,
    peer_address: Option<SocketAddr>,
    /// The peer is noted at the endpoint.
    is_entered: bool,
    peer: Option<Remote>,
    peer_qp: Option<QpAddress>,
    mtu_bytes: u32,
    qp: Option<Reserved>,
    data: ConnectionData,
    /// The request of the consumer that is not done.
    pending: Option<Callback<()>>,
    on_disconnect: Option<DisconnectCallback>,
    /// A disconnect waits for the peer's answer.
    waits_for_peer: bool,
    /// And for the card.
    waits_for_card: bool,
    /// The peer has ended it in place of an answer.
    is_aborted: bool,
    /// The card was gone before there was a connection.
    is_removed: bool,
    /// The QP's state is being changed; what ends the attempt waits for that.
    is_changing: bool,
    /// Why the attempt ends when it has changed.
    failure: Option<Error>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inner = self.lock();
        write!(f, "Connector({}, {}, peer {:?})", self.id, inner.state.name(), inner.peer_address)
    }
}

impl Connector {
    pub(super) fn new(manager: &Arc<ConnectionManager>, id: ConnectorId) -> Arc<Self> {
        let inner = Inner {
            state: State::New,
            endpoint: None,
            peer_address: None,
            is_entered: false,
            peer: None,
            peer_qp: None,
            mtu_bytes: manager.adapter().info().max_mtu_bytes,
            qp: None,
            data: ConnectionData::default(),
            pending: None,
            on_disconnect: None,
            waits_for_peer: false,
            waits_for_card: false,
            is_aborted: false,
            is_removed: false,
            is_changing: false,
            failure: None,
        };
        Arc::new(Self { manager: Arc::clone(manager), id, inner: Mutex::new(inner) })
    }

    /// Returns the manager.
    pub fn manager(&self) -> &Arc<ConnectionManager> {
        &self.manager
    }

    /// Asks whoever listens at `peer` for a connection of `qp`. `done` is called when the peer has accepted:
    /// then comes [`Connector::complete_connect`], or [`Connector::reject`].
    ///
    /// Fails inline with [`Error::ConnectorUsed`], [`Error::WrongState`] or [`Error::NotConnected`] (flushed already)
    /// of the QP, [`Error::PrivateDataTooLong`] (more than
    /// [`MAX_CALLER_DATA`] bytes), [`Error::NotOurAddress`], [`Error::AddressInUse`], [`Error::OutOfPorts`], [`Error::ConnectionExists`],
    /// [`Error::HostUnreachable`] (also for an address of this adapter: there is no loopback). `done` gets [`Error::ConnectionRefused`],
    /// [`Error::ConnectionAborted`] or [`Error::DeviceRemoved`]. After a failure the QP is as it was, and goes with another connector.
    pub fn connect(
        self: &Arc<Self>,
        qp: &Arc<Qp>,
        source: Source<'_>,
        peer: SocketAddr,
        limits: ReadLimits,
        private_data: &[u8],
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) -> Result<Submitted, Error> {
        check_private_data(private_data, MAX_CALLER_DATA)?;
        let mut inner = self.lock();
        if inner.state != State::New {
            return Err(Error::ConnectorUsed { state: inner.state.name() });
        }
        let reserved = Reserved::take(qp)?;
        if self.manager.addresses().any(|own| own == peer.ip()) || self.manager.exchange.at(peer.ip()).is_none() {
            return Err(Error::HostUnreachable { address: peer.ip() });
        }
        let endpoint = match source {
            Source::Own(address) => self.manager.take_endpoint(address)?,
            Source::Shared(shared) => Arc::clone(shared.endpoint()),
        };
        // A fault that is not told to this connector shows here; one that is waits for the lock.
        self.watch(qp);
        if qp.state() == QpState::Error {
            return Err(Error::NotConnected { qpn: qp.qpn(), state: QpState::Error });
        }
        endpoint.enter_peer(peer)?;
        let limits = self.capped(limits);
        let source = endpoint.address();
        inner.data.limits = limits;
        inner.endpoint = Some(endpoint);
        let message = Message::Request { to: peer, source, offer: self.offer(qp, &inner, limits, private_data) };
        inner.peer_address = Some(peer);
        inner.is_entered = true;
        inner.qp = Some(reserved);
        if !self.manager.exchange.send(peer.ip(), message) {
            self.abandon(&mut inner);
            self.enter(&mut inner, State::New);
            inner.endpoint = None;
            inner.peer_address = None;
            return Err(Error::HostUnreachable { address: peer.ip() });
        }
        self.enter(&mut inner, State::Connecting);
        inner.pending = Some(Box::new(done));
        Ok(Submitted::Pending)
    }

    /// Connects the QP: from `done` on, requests can be posted. `on_disconnect` is called when the peer ends the connection, or when it is lost.
    ///
    /// Fails inline with [`Error::WrongConnector`] unless the peer has accepted, with [`Error::NotConnected`] if the QP was flushed meanwhile, or
    /// with the errors of [`Qp::connect`], which `done` gets too; [`Error::ConnectionAborted`] says that the peer gave up meanwhile.
    pub fn complete_connect(
        self: &Arc<Self>,
        on_disconnect: Option<DisconnectCallback>,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) -> Result<Submitted, Error> {
        let (qp, peer) = {
            let mut inner = self.lock();
            let (State::Answered, Some(qp), Some(peer)) = (inner.state, inner.qp(), inner.qp_peer(self.manager.adapter().config())) else {
                // What the peer has given up meanwhile is no misuse of this end's.
                return Err(match inner.state {
                    State::Over if inner.is_removed => Error::DeviceRemoved { register: "CmdStatus" },
                    State::Over if inner.is_aborted => Error::ConnectionAborted,
                    state => Error::WrongConnector { state: state.name(), needed: "answered" },
                });
            };
            self.enter(&mut inner, State::Completing);
            inner.is_changing = true;
            inner.pending = Some(Box::new(done));
            inner.on_disconnect = on_disconnect;
            (qp, peer)
        };
        let connector = Arc::clone(self);
        let submitted = qp.connect(&peer, move |outcome| connector.completed(outcome));
        submitted.inspect_err(|_| self.fail_inline()).map_err(flushed_meanwhile)
    }

    fn completed(self: &Arc<Self>, outcome: Result<(), Error>) {
        let Some(mut inner) = self.changed(State::Completing, outcome) else { return };
        self.enter(&mut inner, State::Connected);
        self.send(&inner, |to| Message::Ready { to });
        finish(inner, Ok(()));
    }

    /// Agrees to the request that this connector was made for. `done` is called when the active side has completed the connection:
    /// then requests can be posted. `on_disconnect` as of [`Connector::complete_connect`].
    ///
    /// Fails inline with [`Error::WrongConnector`], [`Error::WrongState`] or [`Error::NotConnected`] (flushed already)
    /// of the QP, [`Error::PrivateDataTooLong`] (more than
    /// [`MAX_CALLEE_DATA`] bytes), or the errors of [`Qp::prepare`], which `done` gets too; [`Error::ConnectionAborted`] says that the peer gave up.
    pub fn accept(
        self: &Arc<Self>,
        qp: &Arc<Qp>,
        limits: ReadLimits,
        private_data: &[u8],
        on_disconnect: Option<DisconnectCallback>,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) -> Result<Submitted, Error> {
        check_private_data(private_data, MAX_CALLEE_DATA)?;
        let (peer, offer) = {
            let mut inner = self.lock();
            let (State::Requested, Some(peer)) = (inner.state, inner.qp_peer(self.manager.adapter().config())) else {
                // An attempt that the peer has given up meanwhile is no misuse of this end's.
                return Err(match inner.state {
                    State::Over => Error::ConnectionAborted,
                    state => Error::WrongConnector { state: state.name(), needed: "requested" },
                });
            };
            let reserved = Reserved::take(qp)?;
            let limits = self.capped(limits).against(inner.data.limits.flipped());
            inner.data.limits = limits;
            self.enter(&mut inner, State::Accepting);
            inner.is_changing = true;
            inner.qp = Some(reserved);
            inner.pending = Some(Box::new(done));
            inner.on_disconnect = on_disconnect;
            (peer, self.offer(qp, &inner, limits, private_data))
        };
        self.watch(qp);
        let connector = Arc::clone(self);
        let submitted = qp.prepare(&peer, move |outcome| connector.prepared(outcome, offer));
        submitted.inspect_err(|_| self.fail_inline()).map_err(flushed_meanwhile)
    }

    fn prepared(self: &Arc<Self>, outcome: Result<(), Error>, offer: Offer) {
        let Some(inner) = self.changed(State::Accepting, outcome) else { return };
        if !self.send(&inner, |to| Message::Accepted { to, offer }) {
            self.fail(inner, Error::ConnectionAborted, false);
        }
    }

    /// Says no to a request, or to the answer of a peer. Fails with [`Error::PrivateDataTooLong`] (more than [`MAX_CALLEE_DATA`] bytes),
    /// [`Error::ConnectionAborted`] if the peer is gone already, or [`Error::WrongConnector`].
    pub fn reject(&self, private_data: &[u8]) -> Result<(), Error> {
        check_private_data(private_data, MAX_CALLEE_DATA)?;
        let mut inner = self.lock();
        match inner.state {
            State::Requested | State::Answered => {}
            State::Over => return Err(Error::ConnectionAborted),
            state => return Err(Error::WrongConnector { state: state.name(), needed: "requested or answered" }),
        }
        let private_data = private_data.to_vec();
        let is_told = self.send(&inner, |to| Message::Rejected { to, private_data });
        self.abandon(&mut inner);
        if is_told {
            Ok(())
        } else {
            Err(Error::ConnectionAborted)
        }
    }

    /// Returns what the peer has sent along, also with a rejection, and the limits of reads. As long as the connector lives.
    pub fn data(&self) -> ConnectionData {
        self.lock().data.clone()
    }

    /// Returns the local address, once there is one.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.lock().endpoint.as_ref().map(|endpoint| endpoint.address())
    }

    /// Returns the peer's address, once there is one.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.lock().peer_address
    }

    /// Says farewell to the peer and flushes the QP. `done` is called when the peer has answered and the card
    /// does nothing for the QP any more.
    ///
    /// Fails inline with [`Error::WrongConnector`] unless connected; `done` gets [`Error::ConnectionAborted`] if the peer is gone without a farewell.
    pub fn disconnect(self: &Arc<Self>, done: impl FnOnce(Result<(), Error>) + Send + 'static) -> Result<Submitted, Error> {
        let mut inner = self.lock();
        let (State::Connected | State::PeerGone, Some(qp)) = (inner.state, inner.qp()) else {
            return Err(Error::WrongConnector { state: inner.state.name(), needed: "connected" });
        };
        // A peer that was first has nothing more to say; one that is gone says nothing.
        let was_first = inner.state == State::PeerGone;
        inner.waits_for_peer = !was_first && self.send(&inner, |to| Message::Farewell { to });
        inner.is_aborted = !was_first && !inner.waits_for_peer;
        inner.waits_for_card = true;
        self.enter(&mut inner, State::Disconnecting);
        inner.on_disconnect = None;
        inner.pending = Some(Box::new(done));
        drop(inner);
        let connector = Arc::clone(self);
        let adapter = Arc::clone(self.manager.adapter());
        qp.drain(move || {
            // On a card that is gone this runs inside the call.
            adapter.defer(move || {
                let mut inner = connector.lock();
                inner.waits_for_card = false;
                connector.disconnected(inner);
            });
        });
        Ok(Submitted::Pending)
    }

    /// Reports a disconnect, if there is nothing more to wait for.
    fn disconnected(&self, mut inner: MutexGuard<'_, Inner>) {
        if inner.state != State::Disconnecting || inner.waits_for_peer || inner.waits_for_card {
            return;
        }
        let outcome = if inner.is_aborted { Err(Error::ConnectionAborted) } else { Ok(()) };
        self.enter(&mut inner, State::Over);
        inner.leave_endpoint();
        finish(inner, outcome);
    }

    /// Ends the connection, or the attempt at one, and calls `done` when the card does nothing for its QP any more. A request of the
    /// consumer that is pending fails with [`Error::ConnectionAborted`] before that. The QP of an attempt that failed can be used again.
    pub fn close(self: Arc<Self>, done: impl FnOnce() + Send + 'static) -> CloseStatus {
        let pending = self.stop();
        let qp = self.lock().qp.take();
        // Callbacks belong where events are processed, and this is the last of them.
        let adapter = Arc::clone(self.manager.adapter());
        adapter.defer(move || {
            if let Some(pending) = pending {
                pending(Err(Error::ConnectionAborted));
            }
            self.end(qp, Box::new(done));
        });
        CloseStatus::Pending
    }

    /// Ends the connection, or the attempt at one: a request of the consumer that is pending fails with [`Error::ConnectionAborted`],
    /// inside [`crate::Adapter::process_events`]. [`Connector::close`] does this and more.
    pub fn abort(&self) {
        if let Some(pending) = self.stop() {
            self.manager.adapter().defer(move || pending(Err(Error::ConnectionAborted)));
        }
    }

    /// Tells the peer, and returns what is pending. Keeps the QP.
    fn stop(&self) -> Option<Callback<()>> {
        let mut inner = self.lock();
        match inner.state {
            State::New | State::Over => {}
            State::Requested => {
                self.send(&inner, |to| Message::Rejected { to, private_data: Vec::new() });
            }
            _ => {
                self.send(&inner, |to| Message::Aborted { to });
            }
        }
        // The error, if there is one, is that the consumer ends it.
        inner.failure = None;
        let pending = inner.pending.take();
        let qp = inner.qp.take();
        self.abandon(&mut inner);
        inner.qp = qp;
        pending
    }

    /// Takes the QP back, when no change of it is under way any more, and calls `done`.
    fn end(self: Arc<Self>, qp: Option<Reserved>, done: CloseCallback) {
        let adapter = Arc::clone(self.manager.adapter());
        if self.lock().is_changing {
            return adapter.defer(move || self.end(qp, done));
        }
        let later_adapter = Arc::clone(&adapter);
        let last: CloseCallback = Box::new(move || {
            later_adapter.defer(move || {
                self.manager.forget(self.id);
                drop(self);
                done();
            });
        });
        let Some(reserved) = qp else { return last() };
        let qp = Arc::clone(&reserved.0);
        let last = move || {
            drop(reserved);
            last();
        };
        if matches!(qp.state(), QpState::Rts | QpState::Error) {
            qp.drain(last);
        } else {
            qp.give_up_connecting(last);
        }
    }

    // What messages do.

    pub(super) fn requested(&self, endpoint: Arc<Endpoint>, source: SocketAddr, _to: SocketAddr, offer: Offer) {
        let mut inner = self.lock();
        inner.endpoint = Some(endpoint);
        inner.peer_address = Some(source);
        inner.take_offer(offer, self.capped(ReadLimits { inbound: u32::MAX, outbound: u32::MAX }));
        self.enter(&mut inner, State::Requested);
    }

    /// Returns whether the answer was waited for.
    pub(super) fn accepted(self: &Arc<Self>, offer: Offer) -> bool {
        let mut inner = self.lock();
        if inner.state != State::Connecting {
            return false;
        }
        let mine = inner.data.limits;
        inner.take_offer(offer, mine);
        self.enter(&mut inner, State::Answered);
        finish(inner, Ok(()));
        true
    }

    pub(super) fn rejected(self: &Arc<Self>, private_data: Vec<u8>) {
        let mut inner = self.lock();
        inner.data.private_data = private_data;
        match (inner.state, inner.peer_address) {
            (State::Connecting, Some(address)) => self.fail(inner, Error::ConnectionRefused { address }, false),
            // The active side does not want any more.
            (State::Accepting, Some(address)) => self.fail(inner, Error::ConnectionRefused { address }, false),
            _ => {}
        }
    }

    pub(super) fn peer_is_ready(self: &Arc<Self>) {
        let qp = {
            let mut inner = self.lock();
            let (State::Accepting, Some(qp)) = (inner.state, inner.qp()) else { return };
            inner.is_changing = true;
            qp
        };
        let connector = Arc::clone(self);
        let submitted = qp.activate(move |outcome| connector.activated(outcome));
        if let Err(error) = submitted {
            let mut inner = self.lock();
            inner.is_changing = false;
            self.fail(inner, error, true);
        }
    }

    fn activated(self: &Arc<Self>, outcome: Result<(), Error>) {
        let Some(mut inner) = self.changed(State::Accepting, outcome) else { return };
        self.enter(&mut inner, State::Connected);
        finish(inner, Ok(()));
    }

    /// The QP's state has been changed, or could not be. Returns the lock if the connection goes on.
    fn changed(self: &Arc<Self>, expected: State, outcome: Result<(), Error>) -> Option<MutexGuard<'_, Inner>> {
        let mut inner = self.lock();
        inner.is_changing = false;
        if let Some(failure) = inner.failure.take() {
            self.fail(inner, failure, false);
            return None;
        }
        if inner.state != expected {
            // Closed meanwhile; the close takes the QP back.
            return None;
        }
        match outcome {
            Ok(()) => Some(inner),
            Err(error) => {
                self.fail(inner, error, true);
                None
            }
        }
    }

    pub(super) fn peer_said_farewell(self: &Arc<Self>) {
        let mut inner = self.lock();
        self.send(&inner, |to| Message::FarewellReply { to });
        match inner.state {
            State::Connected => {
                self.enter(&mut inner, State::PeerGone);
                call_disconnect(inner);
            }
            // The farewell overtook the confirmation of this side's own request.
            State::Accepting | State::Completing => self.fail(inner, Error::ConnectionAborted, false),
            _ => {}
        }
    }

    pub(super) fn farewell_answered(self: &Arc<Self>) {
        let mut inner = self.lock();
        inner.waits_for_peer = false;
        self.disconnected(inner);
    }

    pub(super) fn aborted(self: &Arc<Self>) {
        let mut inner = self.lock();
        match inner.state {
            State::Connected | State::PeerGone => {
                self.break_off(&mut inner);
                let qp = inner.qp();
                call_disconnect(inner);
                if let Some(qp) = qp {
                    qp.flush();
                }
            }
            State::Disconnecting => {
                // Behind the answer it is the usual end of the peer's connector.
                inner.is_aborted |= inner.waits_for_peer;
                inner.waits_for_peer = false;
                self.disconnected(inner);
            }
            State::Connecting | State::Answered | State::Completing | State::Requested | State::Accepting => {
                inner.is_aborted = true;
                self.fail(inner, Error::ConnectionAborted, false);
            }
            State::New | State::Over => {}
        }
    }

    /// The QP failed, so the connection is lost, on both sides. An attempt at one ends by itself, unless the card is gone.
    fn lost(self: &Arc<Self>, fault: QpFault) {
        let mut inner = self.lock();
        match inner.state {
            State::Connected | State::PeerGone => {
                self.send(&inner, |to| Message::Aborted { to });
                self.break_off(&mut inner);
                call_disconnect(inner);
            }
            State::Connecting | State::Answered | State::Completing | State::Accepting if fault == QpFault::DeviceRemoved => {
                inner.is_removed = true;
                self.fail(inner, Error::DeviceRemoved { register: "CmdStatus" }, true);
            }
            _ => {}
        }
    }

    fn watch(self: &Arc<Self>, qp: &Arc<Qp>) {
        let connector = Arc::downgrade(self);
        qp.set_fault_callback(Box::new(move |_, fault| {
            if let Some(connector) = connector.upgrade() {
                connector.lost(fault);
            }
        }));
    }

    /// Ends an attempt, and reports why. The QP is put back, so that it can be used for another.
    fn fail(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>, error: Error, tell_peer: bool) {
        if tell_peer {
            self.send(&inner, |to| Message::Aborted { to });
        }
        if inner.is_changing {
            inner.failure.get_or_insert(error);
            return;
        }
        let qp = inner.qp.take();
        let pending = inner.pending.take();
        self.abandon(&mut inner);
        // A close waits until this has been reported.
        inner.is_changing = true;
        drop(inner);
        let connector = Arc::clone(self);
        let report = move || {
            if let Some(pending) = pending {
                pending(Err(error));
            }
            connector.lock().is_changing = false;
        };
        match qp {
            Some(reserved) => {
                let qp = Arc::clone(&reserved.0);
                qp.give_up_connecting(move || {
                    // Free for another attempt, inside the callback already.
                    drop(reserved);
                    report();
                });
            }
            None => report(),
        }
    }

    /// Takes back what a call has noted that fails inline.
    fn fail_inline(&self) {
        let mut inner = self.lock();
        inner.pending = None;
        inner.is_changing = false;
        self.send(&inner, |to| Message::Aborted { to });
        self.abandon(&mut inner);
    }

    fn capped(&self, limits: ReadLimits) -> ReadLimits {
        let info = self.manager.adapter().info();
        ReadLimits { inbound: limits.inbound.min(info.max_inbound_reads), outbound: limits.outbound.min(info.max_outbound_reads) }
    }

    fn offer(&self, qp: &Arc<Qp>, inner: &Inner, limits: ReadLimits, private_data: &[u8]) -> Offer {
        let ip = inner.endpoint.as_ref().map_or(qp.address().ip, |endpoint| endpoint.address().ip());
        Offer {
            from: Remote { ip, id: self.id },
            qp: QpAddress { ip, ..qp.address() },
            mtu_bytes: inner.mtu_bytes,
            limits,
            private_data: private_data.to_vec(),
        }
    }

    /// Sends to the peer, if there is one. Returns whether somebody gets it.
    fn send(&self, inner: &Inner, message: impl FnOnce(ConnectorId) -> Message) -> bool {
        inner.peer.is_some_and(|peer| self.manager.exchange.send(peer.ip, message(peer.id)))
    }

    /// Goes on to `state`, and counts what that says of the connection.
    fn enter(&self, inner: &mut Inner, state: State) {
        let was = std::mem::replace(&mut inner.state, state);
        let mut counts = lock(&self.manager.counts);
        match (was, state) {
            (State::Completing, State::Connected) => counts.connected += 1,
            (State::Accepting, State::Connected) => counts.accepted += 1,
            (attempt, State::Over) if attempt.is_attempt() => counts.failed += 1,
            _ => {}
        }
        match (was.is_connected(), state.is_connected()) {
            (false, true) => counts.active += 1,
            (true, false) => counts.active -= 1,
            _ => {}
        }
    }

    /// Is over without a farewell of this side. What the peer has left by then does not break.
    fn break_off(&self, inner: &mut Inner) {
        if inner.state == State::Connected {
            lock(&self.manager.counts).broken += 1;
        }
        self.enter(inner, State::Over);
    }

    /// Is over. The address stays taken until the connector is gone.
    fn abandon(&self, inner: &mut Inner) {
        self.enter(inner, State::Over);
        inner.leave_endpoint();
        inner.on_disconnect = None;
        inner.qp = None;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        self.manager.forget(self.id);
        let mut inner = self.lock();
        // A connector that nobody has closed: the peer must not wait for it.
        match inner.state {
            State::New | State::Over => {}
            State::Requested => {
                self.send(&inner, |to| Message::Rejected { to, private_data: Vec::new() });
            }
            _ => {
                self.send(&inner, |to| Message::Aborted { to });
                if let Some(qp) = inner.qp() {
                    qp.flush();
                }
            }
        }
        self.abandon(&mut inner);
    }
}

impl Inner {
    fn take_offer(&mut self, offer: Offer, mine: ReadLimits) {
        self.peer = Some(offer.from);
        self.peer_qp = Some(offer.qp);
        self.mtu_bytes = self.mtu_bytes.min(offer.mtu_bytes);
        self.data = ConnectionData { limits: mine.against(offer.limits), private_data: offer.private_data };
    }

    fn qp(&self) -> Option<Arc<Qp>> {
        self.qp.as_ref().map(|reserved| Arc::clone(&reserved.0))
    }

    fn qp_peer(&self, config: &AdapterConfig) -> Option<QpPeer> {
        let peer = QpPeer::new(self.peer_qp?, self.mtu_bytes);
        Some(QpPeer { timeout: config.ack_timeout, retry_count: config.retry_count, ..peer })
    }

    fn leave_endpoint(&mut self) {
        if let (true, Some(endpoint), Some(peer)) = (self.is_entered, &self.endpoint, self.peer_address) {
            endpoint.leave_peer(peer);
        }
        self.is_entered = false;
    }
}

impl ReadLimits {
    fn flipped(self) -> Self {
        Self { inbound: self.outbound, outbound: self.inbound }
    }
}

/// Says of a QP that was in RESET when an attempt began, and is not any more, what a consumer makes of it.
fn flushed_meanwhile(error: Error) -> Error {
    match error {
        Error::WrongState { qpn, state: state @ QpState::Error, .. } => Error::NotConnected { qpn, state },
        other => other,
    }
}

fn check_private_data(bytes: &[u8], limit: usize) -> Result<(), Error> {
    if bytes.len() > limit {
        return Err(Error::PrivateDataTooLong { len_bytes: bytes.len(), limit });
    }
    Ok(())
}

/// Calls what is pending, without the lock.
fn finish(mut inner: MutexGuard<'_, Inner>, outcome: Result<(), Error>) {
    let pending = inner.pending.take();
    drop(inner);
    if let Some(done) = pending {
        done(outcome);
    }
}

/// Tells the consumer, once, without the lock.
fn call_disconnect(mut inner: MutexGuard<'_, Inner>) {
    let on_disconnect = inner.on_disconnect.take();
    drop(inner);
    if let Some(on_disconnect) = on_disconnect {
        on_disconnect();
    }
}
