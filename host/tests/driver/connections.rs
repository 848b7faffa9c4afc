//! Connections between two cards: who is told what, when, and how often.
//!
//! Callbacks check that they run inside `process_events` and nowhere else, in every test. One call of it is one step of
//! a side, so a test can stop a connection anywhere on its way: see [`Stage`].

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use verbena_abi::queue::{CqeStatus, EventKind};
use verbena_abi::regs::CapReads;
use verbena_host::cm::{
    ConnectionCounts, ConnectionManager, Connector, DisconnectCallback, Exchange, Listener, ReadLimits, SharedEndpoint, Source,
    MAX_CALLEE_DATA, MAX_CALLER_DATA,
};
use verbena_host::ndk::NtStatus;
use verbena_host::{Adapter, AdapterConfig, CloseStatus, Cq, Error, Pd, Qp, QpOptions, QpState, Submitted, WriteFlags};

use crate::fake_card::FakeCard;

const OK: NtStatus = NtStatus::SUCCESS;
const ABORTED: NtStatus = NtStatus::CONNECTION_ABORTED;
const REFUSED: NtStatus = NtStatus::CONNECTION_REFUSED;

/// The side that asks, and the side that listens.
const ACTIVE: usize = 0;
const PASSIVE: usize = 1;
/// Where it listens.
const PORT: u16 = 445;

const NO_LIMITS: ReadLimits = ReadLimits { inbound: 0, outbound: 0 };

thread_local! {
    static IS_PROCESSING: Cell<bool> = const { Cell::new(false) };
}

/// Runs something that may call back.
fn processing<T>(run: impl FnOnce() -> T) -> T {
    let before = IS_PROCESSING.replace(true);
    let value = run();
    IS_PROCESSING.set(before);
    value
}

/// A callback of a connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Connect(NtStatus),
    Complete(NtStatus),
    Accept(NtStatus),
    Disconnect(NtStatus),
    /// The disconnect event.
    Event,
    Closed,
}

/// The callbacks of one connector, in order.
#[derive(Clone, Debug, Default)]
struct Calls(Arc<Mutex<Vec<Call>>>);

impl Calls {
    fn all(&self) -> Vec<Call> {
        self.0.lock().unwrap().clone()
    }

    fn count(&self, is_meant: impl Fn(&Call) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|call| is_meant(call)).count()
    }

    fn note(&self, call: Call) {
        assert!(IS_PROCESSING.get(), "{call:?} on the stack of a call of the consumer's");
        self.0.lock().unwrap().push(call);
    }

    /// Returns the callback of a request.
    fn done(&self, call: fn(NtStatus) -> Call) -> impl FnOnce(Result<(), Error>) + Send + 'static {
        let calls = self.clone();
        move |outcome| calls.note(call(outcome.map_or_else(|error| error.nt_status(), |()| OK)))
    }

    fn event(&self) -> Option<DisconnectCallback> {
        let calls = self.clone();
        Some(Box::new(move || calls.note(Call::Event)))
    }

    fn closed(&self) -> impl FnOnce() + Send + 'static {
        let calls = self.clone();
        move || calls.note(Call::Closed)
    }
}

/// A card with its adapter.
struct Node {
    card: Arc<FakeCard>,
    adapter: Arc<Adapter>,
    manager: Arc<ConnectionManager>,
    pd: Arc<Pd>,
    cq: Arc<Cq>,
    ip: IpAddr,
    /// QPs for tests that have something under way: creating one waits, and lets that happen.
    spare: Mutex<Vec<Arc<Qp>>>,
}

impl Node {
    fn new(exchange: &Arc<Exchange>, ipv4: Option<Ipv4Addr>, ipv6: Option<Ipv6Addr>, number: u8, reads: (u32, u32)) -> Self {
        let card = FakeCard::new();
        let reads = CapReads::reset().with(CapReads::INBOUND, reads.0).with(CapReads::OUTBOUND, reads.1);
        card.state().registers.insert(CapReads::OFFSET, reads.raw());
        let config = AdapterConfig { max_waits: 200, ..AdapterConfig::new([2, 0, 0, 0, 0, number], ipv4, ipv6) };
        let adapter = Adapter::open(card.clone(), config).unwrap();
        let manager = ConnectionManager::new(&adapter, exchange);
        let pd = Pd::create(&adapter).unwrap();
        let cq = Cq::create_blocking(&adapter, 64, None).unwrap();
        let ip = ipv6.filter(|_| ipv4.is_none()).map_or_else(|| ipv4.unwrap().into(), IpAddr::V6);
        let node = Self { card, adapter, manager, pd, cq, ip, spare: Mutex::default() };
        let spare = (0..CONNECTIONS).map(|_| node.new_qp()).collect();
        *node.spare.lock().unwrap() = spare;
        node
    }

    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, port)
    }

    fn qp(&self) -> Arc<Qp> {
        self.spare.lock().unwrap().pop().expect("tests need few")
    }

    fn new_qp(&self) -> Arc<Qp> {
        let options = QpOptions { receive_depth: 4, receive_sges: 1, ..QpOptions::sender(4) };
        Qp::create_blocking(&self.pd, &self.cq, &self.cq, options).unwrap()
    }

    /// Returns an end that is not connected.
    fn end(&self) -> End {
        End::new(self.manager.connector(), self.qp())
    }

    /// Listens, and keeps whoever comes.
    fn listen(&self, port: u16) -> Waiting {
        let requests: Requests = Arc::default();
        let kept = Arc::clone(&requests);
        let listener = self.manager.listener(Box::new(move |connector| {
            assert!(IS_PROCESSING.get(), "a request on the stack of a call of the consumer's");
            kept.lock().unwrap().push(connector);
        }));
        listener.listen(self.at(port)).unwrap();
        Waiting { listener, requests }
    }

    /// Takes one step.
    fn step(&self) -> usize {
        processing(|| self.adapter.process_events())
    }

    /// Lets the card hold commands back, or lets it execute what it holds.
    fn hold(&self, is_held: bool) {
        self.card.state().hold_commands = is_held;
        if !is_held {
            self.card.step();
        }
    }

    fn is_free(&self, port: u16) -> bool {
        self.manager.shared_endpoint(self.at(port)).is_ok()
    }
}

type Requests = Arc<Mutex<Vec<Arc<Connector>>>>;

/// A listener and who came.
struct Waiting {
    listener: Arc<Listener>,
    requests: Requests,
}

impl Waiting {
    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// Takes the oldest request.
    fn take(&self, node: &Node) -> End {
        End::new(self.requests.lock().unwrap().remove(0), node.qp())
    }
}

/// A connector with its QP and its callbacks.
struct End {
    connector: Option<Arc<Connector>>,
    qp: Arc<Qp>,
    calls: Calls,
}

impl End {
    fn new(connector: Arc<Connector>, qp: Arc<Qp>) -> Self {
        Self { connector: Some(connector), qp, calls: Calls::default() }
    }

    fn connector(&self) -> &Arc<Connector> {
        self.connector.as_ref().unwrap()
    }

    fn connect_with(&self, source: Source<'_>, to: SocketAddr, limits: ReadLimits, data: &[u8]) -> Result<(), Error> {
        started(self.connector().connect(&self.qp, source, to, limits, data, self.calls.done(Call::Connect)))
    }

    fn connect(&self, node: &Node, to: SocketAddr) -> Result<(), Error> {
        self.connect_with(Source::Own(node.at(0)), to, NO_LIMITS, &[])
    }

    fn complete(&self) -> Result<(), Error> {
        started(self.connector().complete_connect(self.calls.event(), self.calls.done(Call::Complete)))
    }

    fn accept_with(&self, limits: ReadLimits, data: &[u8]) -> Result<(), Error> {
        started(self.connector().accept(&self.qp, limits, data, self.calls.event(), self.calls.done(Call::Accept)))
    }

    fn accept(&self) -> Result<(), Error> {
        self.accept_with(NO_LIMITS, &[])
    }

    fn reject(&self) -> Result<(), Error> {
        self.connector().reject(&[])
    }

    fn disconnect(&self) -> Result<(), Error> {
        started(self.connector().disconnect(self.calls.done(Call::Disconnect)))
    }

    fn close(&mut self) {
        assert_eq!(self.connector.take().unwrap().close(self.calls.closed()), CloseStatus::Pending);
    }

    fn data(&self) -> Vec<u8> {
        self.connector().data().private_data
    }
}

/// Of a request that was not refused there is nothing to know but that it pends.
fn started(submitted: Result<Submitted, Error>) -> Result<(), Error> {
    submitted.map(|Submitted::Pending| ())
}

/// Two cards that find each other.
struct Net {
    exchange: Arc<Exchange>,
    nodes: [Node; 2],
}

impl Net {
    fn new() -> Self {
        Self::with_reads([(0, 0); 2])
    }

    /// Returns cards that answer and have outstanding so many READs.
    fn with_reads(reads: [(u32, u32); 2]) -> Self {
        let exchange = Exchange::new();
        let node = |number: u8| {
            let ip = Ipv4Addr::new(10, 0, 0, number + 1);
            Node::new(&exchange, Some(ip), None, number + 1, reads[usize::from(number)])
        };
        let nodes = [node(0), node(1)];
        Self { exchange, nodes }
    }

    /// Lets everything happen that is under way, held commands excepted.
    fn process(&self) {
        for _ in 0..100 {
            if self.nodes.iter().map(Node::step).sum::<usize>() == 0 {
                return;
            }
        }
    }

    /// Lets everything happen that is under way.
    fn settle(&self) {
        self.nodes.iter().for_each(|node| node.hold(false));
        self.process();
    }

    /// Connects two QPs that are not connected, and ends that again.
    fn try_qps(&self, port: u16, qps: [&Arc<Qp>; 2]) {
        let [active, passive] = &self.nodes;
        let waiting = passive.listen(port);
        let mut asks = End::new(active.manager.connector(), Arc::clone(qps[0]));
        asks.connect(active, passive.at(port)).unwrap();
        self.process();
        let mut answers = End::new(waiting.requests.lock().unwrap().remove(0), Arc::clone(qps[1]));
        answers.accept().unwrap();
        self.process();
        asks.complete().unwrap();
        self.process();
        assert_eq!(asks.calls.all(), [Call::Connect(OK), Call::Complete(OK)]);
        assert_eq!(answers.calls.all(), [Call::Accept(OK)]);
        assert_eq!(qps.map(|qp| qp.state()), [QpState::Rts; 2]);
        asks.close();
        answers.close();
        self.process();
    }

    /// Closes both adapters: nobody holds anything of them any more.
    fn close(self) {
        self.settle();
        for node in self.nodes {
            assert_eq!(node.manager.counts().active, 0, "connections are left");
            let Node { card, adapter, manager, pd, cq, spare, .. } = node;
            drop((manager, pd, cq, spare));
            processing(|| adapter.close_blocking()).unwrap();
            assert!(card.is_memory_free(0));
            let state = card.state();
            assert!(state.qps.is_empty() && state.cqs.is_empty(), "objects are left on the card");
        }
    }
}

/// How far a connection has come. The next step of whoever it is up to has not been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The request is under way.
    Requesting,
    /// The passive side has a connector.
    Requested,
    /// It has accepted, and its card prepares the QP.
    Preparing,
    /// Its answer is under way.
    Accepted,
    /// The active side has it.
    Answered,
    /// Its card connects the QP.
    Completing,
    /// It is connected, and that is under way to the passive side.
    Ready,
    /// The card of the passive side activates the QP.
    Activating,
    /// Both are connected.
    Connected,
}

impl Stage {
    const ALL: [Self; 9] = [
        Self::Requesting,
        Self::Requested,
        Self::Preparing,
        Self::Accepted,
        Self::Answered,
        Self::Completing,
        Self::Ready,
        Self::Activating,
        Self::Connected,
    ];
}

/// A connection at some stage.
struct Pair {
    net: Net,
    waiting: Waiting,
    active: End,
    /// None before the request has arrived.
    passive: Option<End>,
}

impl Pair {
    fn at(stage: Stage) -> Self {
        let net = Net::new();
        let [active, passive] = &net.nodes;
        let waiting = passive.listen(PORT);
        let asks = active.end();
        let mut answers = None;
        asks.connect(active, passive.at(PORT)).unwrap();
        if stage >= Stage::Requested {
            passive.step();
            answers = Some(waiting.take(passive));
        }
        let accepting = || answers.as_ref().unwrap();
        if stage >= Stage::Preparing {
            passive.hold(true);
            accepting().accept().unwrap();
        }
        if stage >= Stage::Accepted {
            passive.hold(false);
            passive.step();
        }
        if stage >= Stage::Answered {
            active.step();
        }
        if stage >= Stage::Completing {
            active.hold(true);
            asks.complete().unwrap();
        }
        if stage >= Stage::Ready {
            active.hold(false);
            active.step();
        }
        if stage >= Stage::Activating {
            passive.hold(true);
            passive.step();
        }
        if stage >= Stage::Connected {
            passive.hold(false);
            passive.step();
        }
        Self { net, waiting, active: asks, passive: answers }
    }

    fn connected() -> Self {
        let mut pair = Self::at(Stage::Connected);
        assert_eq!(pair.active.calls.all(), [Call::Connect(OK), Call::Complete(OK)]);
        assert_eq!(pair.passive().calls.all(), [Call::Accept(OK)]);
        // What follows is what the test is about.
        pair.active.calls.0.lock().unwrap().clear();
        pair.passive().calls.0.lock().unwrap().clear();
        pair
    }

    /// Returns the passive end, for which the request must have arrived.
    fn passive(&mut self) -> &mut End {
        if self.passive.is_none() {
            self.passive = Some(self.waiting.take(&self.net.nodes[PASSIVE]));
        }
        self.passive.as_mut().unwrap()
    }

    fn end(&mut self, side: usize) -> &mut End {
        if side == ACTIVE {
            &mut self.active
        } else {
            self.passive()
        }
    }

    fn qps(&mut self) -> [Arc<Qp>; 2] {
        [Arc::clone(&self.active.qp), Arc::clone(&self.passive().qp)]
    }

    /// Lets everything happen, and returns what was called on both ends.
    fn outcome(&mut self) -> [Vec<Call>; 2] {
        self.net.settle();
        [self.active.calls.all(), self.passive().calls.all()]
    }

    /// Closes what is open, and both adapters.
    fn close(mut self) {
        for side in [ACTIVE, PASSIVE] {
            if side == PASSIVE && self.passive.is_none() && self.waiting.count() == 0 {
                continue;
            }
            let end = self.end(side);
            if end.connector.is_some() {
                end.close();
            }
        }
        self.net.settle();
        let Self { net, waiting, active, passive } = self;
        for calls in std::iter::once(&active).chain(&passive).map(|end| end.calls.all()) {
            assert_eq!(calls.last(), Some(&Call::Closed), "{calls:?}");
        }
        drop((waiting, active, passive));
        net.close();
    }
}

// The way that all of it is there for.

#[test]
fn a_connection_is_made_in_three_messages_and_ends_with_a_farewell() {
    let mut pair = Pair::at(Stage::Connected);
    let qps = pair.qps();
    assert_eq!(pair.outcome(), [vec![Call::Connect(OK), Call::Complete(OK)], vec![Call::Accept(OK)]]);
    assert_eq!([qps[0].state(), qps[1].state()], [QpState::Rts; 2]);
    let contexts = [0, 1].map(|side| qps[side].context());
    for (mine, other) in [(0, 1), (1, 0)] {
        assert_eq!(contexts[mine].remote_qpn.get(), qps[other].qpn());
        assert_eq!(contexts[mine].rq_psn.get(), qps[other].first_psn());
        assert_eq!(contexts[mine].remote_mac, [2, 0, 0, 0, 0, other as u8 + 1]);
    }
    pair.active.disconnect().unwrap();
    let [active, passive] = pair.outcome();
    assert_eq!(active, [Call::Connect(OK), Call::Complete(OK), Call::Disconnect(OK)]);
    assert_eq!(passive, [Call::Accept(OK), Call::Event]);
    drop(qps);
    pair.close();
}

#[test]
fn the_passive_side_is_connected_only_when_the_active_side_has_completed() {
    let mut pair = Pair::at(Stage::Answered);
    assert_eq!(pair.outcome(), [vec![Call::Connect(OK)], vec![]]);
    let qps = pair.qps();
    assert_eq!([qps[0].state(), qps[1].state()], [QpState::Reset, QpState::Rtr], "its QP answers and does not ask");
    drop(qps);
    pair.active.complete().unwrap();
    assert_eq!(pair.outcome()[PASSIVE], [Call::Accept(OK)]);
    pair.close();
}

#[test]
fn private_data_goes_both_ways_and_stays_as_long_as_the_connectors_live() {
    let net = Net::new();
    let [active, passive] = &net.nodes;
    let waiting = passive.listen(PORT);
    let mut asks = active.end();
    asks.connect_with(Source::Own(active.at(0)), passive.at(PORT), NO_LIMITS, b"question").unwrap();
    assert_eq!(asks.data(), b"");
    net.process();
    let mut answers = waiting.take(passive);
    assert_eq!(answers.data(), b"question");
    answers.accept_with(NO_LIMITS, b"answer").unwrap();
    net.process();
    assert_eq!(asks.data(), b"answer");
    asks.complete().unwrap();
    net.process();
    answers.disconnect().unwrap();
    net.process();
    assert_eq!((asks.data(), answers.data()), (b"answer".to_vec(), b"question".to_vec()));
    asks.close();
    answers.close();
    drop((waiting, asks, answers));
    net.close();
}

#[test]
fn read_limits_are_capped_by_the_card_and_then_by_the_peers_opposite_limit() {
    let limits = |inbound, outbound| ReadLimits { inbound, outbound };
    // Cards' maxima, what both ask for, what the passive side sees before it accepts, and what both get.
    let cases = [
        ([(16, 16), (16, 16)], [limits(3, 5), limits(7, 2)], limits(5, 3), [limits(2, 5), limits(5, 2)]),
        ([(16, 16), (16, 16)], [limits(u32::MAX, u32::MAX), limits(u32::MAX, 0)], limits(16, 16), [limits(0, 16), limits(16, 0)]),
        ([(4, 1), (16, 16)], [limits(9, 9), limits(9, 9)], limits(1, 4), [limits(4, 1), limits(1, 4)]),
        ([(16, 16), (2, 3)], [limits(9, 9), limits(9, 9)], limits(2, 3), [limits(3, 2), limits(2, 3)]),
        ([(0, 0), (16, 16)], [limits(9, 9), limits(9, 9)], limits(0, 0), [limits(0, 0), limits(0, 0)]),
    ];
    for (cards, wanted, seen, agreed) in cases {
        let net = Net::with_reads(cards);
        let [active, passive] = &net.nodes;
        let waiting = passive.listen(PORT);
        let asks = active.end();
        asks.connect_with(Source::Own(active.at(0)), passive.at(PORT), wanted[0], &[]).unwrap();
        net.process();
        let answers = waiting.take(passive);
        assert_eq!(answers.connector().data().limits, seen, "{cards:?} {wanted:?}");
        answers.accept_with(wanted[1], &[]).unwrap();
        net.process();
        asks.complete().unwrap();
        net.process();
        assert_eq!([asks.connector().data().limits, answers.connector().data().limits], agreed, "{cards:?} {wanted:?}");
    }
}

#[test]
fn addresses_are_there_from_the_request_on_and_mirror_each_other() {
    let mut pair = Pair::at(Stage::Requested);
    let fresh = pair.net.nodes[ACTIVE].manager.connector();
    assert_eq!((fresh.local_address(), fresh.peer_address()), (None, None));
    drop(fresh);
    let at = pair.net.nodes[PASSIVE].at(PORT);
    let from = pair.active.connector().local_address().unwrap();
    assert_eq!(from.ip(), pair.net.nodes[ACTIVE].ip);
    assert!((49_152..=65_535).contains(&from.port()), "{from}");
    assert_eq!(pair.active.connector().peer_address(), Some(at));
    let passive = pair.passive().connector();
    assert_eq!((passive.local_address(), passive.peer_address()), (Some(at), Some(from)));
    pair.close();
}

#[test]
fn a_request_can_be_answered_in_the_listeners_own_callback() {
    let net = Net::new();
    let [active, passive] = &net.nodes;
    let (qp, calls) = (passive.qp(), Calls::default());
    let (kept, noted): (Requests, _) = (Arc::default(), calls.clone());
    let (keep, for_it) = (Arc::clone(&kept), Arc::clone(&qp));
    let listener = passive.manager.listener(Box::new(move |connector| {
        let _ = connector.accept(&for_it, NO_LIMITS, &[], noted.event(), noted.done(Call::Accept)).unwrap();
        keep.lock().unwrap().push(connector);
    }));
    listener.listen(passive.at(PORT)).unwrap();
    let asks = active.end();
    asks.connect(active, passive.at(PORT)).unwrap();
    net.process();
    asks.complete().unwrap();
    net.process();
    assert_eq!(calls.all(), [Call::Accept(OK)]);
}

// Refusals.

#[test]
fn nobody_listens() {
    let net = Net::new();
    let [active, passive] = &net.nodes;
    let mut asks = active.end();
    asks.connect(active, passive.at(PORT)).unwrap();
    net.process();
    assert_eq!(asks.calls.all(), [Call::Connect(REFUSED)]);
    net.try_qps(1, [&asks.qp, &passive.qp()]);
    asks.close();
    net.process();
    assert_eq!(asks.calls.all(), [Call::Connect(REFUSED), Call::Closed]);
    drop(asks);
    net.close();
}

#[test]
fn a_listener_at_another_port_is_none() {
    let net = Net::new();
    let [active, passive] = &net.nodes;
    let waiting = passive.listen(PORT);
    let asks = active.end();
    asks.connect(active, passive.at(PORT + 1)).unwrap();
    net.process();
    assert_eq!((asks.calls.all(), waiting.count()), (vec![Call::Connect(REFUSED)], 0));
}

#[test]
fn a_paused_listener_is_none_until_it_goes_on() {
    let net = Net::new();
    let [active, passive] = &net.nodes;
    let waiting = passive.listen(PORT);
    waiting.listener.pause(true);
    let asks = active.end();
    asks.connect(active, passive.at(PORT)).unwrap();
    net.process();
    assert_eq!((asks.calls.all(), waiting.count()), (vec![Call::Connect(REFUSED)], 0));
    assert!(!passive.is_free(PORT), "it has its address all the same");
    waiting.listener.pause(false);
    let again = End::new(active.manager.connector(), Arc::clone(&asks.qp));
    again.connect(active, passive.at(PORT)).unwrap();
    net.process();
    assert_eq!((again.calls.all(), waiting.count()), (vec![], 1));
}

#[test]
fn a_listener_that_goes_while_a_request_is_under_way_refuses_it() {
    let Pair { net, waiting, active, .. } = Pair::at(Stage::Requesting);
    drop(waiting);
    net.process();
    assert_eq!(active.calls.all(), [Call::Connect(REFUSED)]);
}

#[test]
fn a_rejection_carries_private_data() {
    let mut pair = Pair::at(Stage::Requested);
    pair.passive().connector().reject(b"not today").unwrap();
    assert_eq!(pair.outcome(), [vec![Call::Connect(REFUSED)], vec![]]);
    assert_eq!(pair.active.data(), b"not today");
    assert_eq!(pair.passive().reject().unwrap_err().nt_status(), ABORTED, "once is enough");
    let qps = pair.qps();
    pair.net.try_qps(1, [&qps[0], &qps[1]]);
    drop(qps);
    pair.close();
}

#[test]
fn a_connector_that_is_dropped_without_an_answer_rejects() {
    let mut pair = Pair::at(Stage::Requested);
    pair.passive().connector = None;
    assert_eq!(pair.outcome(), [vec![Call::Connect(REFUSED)], vec![]]);
}

#[test]
fn the_active_side_may_reject_the_answer() {
    let mut pair = Pair::at(Stage::Answered);
    pair.active.connector().reject(b"too dear").unwrap();
    // choice: told as a refusal, not as an abort, so that the passive side knows why.
    assert_eq!(pair.outcome(), [vec![Call::Connect(OK)], vec![Call::Accept(REFUSED)]]);
    assert_eq!(pair.passive().data(), b"too dear");
    let qps = pair.qps();
    pair.net.try_qps(1, [&qps[0], &qps[1]]);
    drop(qps);
    pair.close();
}

#[test]
fn private_data_up_to_the_limit_and_not_beyond() {
    let mut pair = Pair::at(Stage::Requested);
    let too_long = |outcome: Result<(), Error>, limit| {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::PrivateDataTooLong { len_bytes, limit: l } if len_bytes == limit + 1 && l == limit), "{error}");
        assert_eq!(error.nt_status(), NtStatus::INVALID_BUFFER_SIZE);
    };
    let bytes: Vec<u8> = (0..=MAX_CALLEE_DATA as u8).collect();
    let (caller, callee) = (&bytes[..MAX_CALLER_DATA + 1], &bytes[..MAX_CALLEE_DATA + 1]);

    let passive = pair.passive();
    too_long(passive.accept_with(NO_LIMITS, callee), MAX_CALLEE_DATA);
    too_long(passive.connector().reject(callee), MAX_CALLEE_DATA);
    passive.accept_with(NO_LIMITS, &callee[..MAX_CALLEE_DATA]).unwrap();
    pair.outcome();
    assert_eq!(pair.active.data(), &callee[..MAX_CALLEE_DATA]);
    too_long(pair.active.connector().reject(callee), MAX_CALLEE_DATA);
    pair.active.connector().reject(&callee[..MAX_CALLEE_DATA]).unwrap();
    assert_eq!(pair.outcome()[PASSIVE], [Call::Accept(REFUSED)]);
    assert_eq!(pair.passive().data(), &callee[..MAX_CALLEE_DATA]);

    let [active, passive] = &pair.net.nodes;
    let asks = active.end();
    let from = Source::Own(active.at(0));
    too_long(asks.connect_with(from, passive.at(PORT), NO_LIMITS, caller), MAX_CALLER_DATA);
    asks.connect_with(from, passive.at(PORT), NO_LIMITS, &caller[..MAX_CALLER_DATA]).unwrap();
    pair.net.process();
    assert_eq!(pair.waiting.take(passive).data(), &caller[..MAX_CALLER_DATA]);
}

// What is counted.

#[test]
fn connections_are_counted_by_what_became_of_them() {
    let count = |pair: &mut Pair| {
        pair.net.settle();
        [ACTIVE, PASSIVE].map(|side| pair.net.nodes[side].manager.counts())
    };
    let none = ConnectionCounts::default();
    let failed = ConnectionCounts { failed: 1, ..none };
    // Under way nothing is counted, and made each side counts its own.
    for stage in Stage::ALL {
        let pair = Pair::at(stage);
        let counts = [ACTIVE, PASSIVE].map(|side| pair.net.nodes[side].manager.counts());
        let connected = ConnectionCounts { connected: 1, active: 1, ..none };
        let accepted = ConnectionCounts { accepted: 1, active: 1, ..none };
        let expected = [if stage >= Stage::Ready { connected } else { none }, if stage >= Stage::Connected { accepted } else { none }];
        assert_eq!(counts, expected, "{stage:?}");
        pair.close();
    }
    let [connected, accepted] = [ConnectionCounts { connected: 1, ..none }, ConnectionCounts { accepted: 1, ..none }];

    // An attempt that is refused, by either side or by nobody.
    let mut pair = Pair::at(Stage::Requested);
    pair.passive().reject().unwrap();
    assert_eq!(count(&mut pair), [failed; 2]);
    let [active, passive] = &pair.net.nodes;
    let asks = active.end();
    asks.connect(active, passive.at(PORT + 1)).unwrap();
    assert_eq!(count(&mut pair), [ConnectionCounts { failed: 2, ..none }, failed], "nobody listens there");
    drop(asks);
    pair.close();
    let mut pair = Pair::at(Stage::Answered);
    pair.active.reject().unwrap();
    assert_eq!(count(&mut pair), [failed; 2]);
    pair.close();
    // One that does not begin is none.
    let pair = Pair::at(Stage::Requesting);
    let [active, passive] = &pair.net.nodes;
    active.end().connect_with(Source::Own(passive.at(0)), passive.at(PORT), NO_LIMITS, &[]).unwrap_err();
    assert_eq!(active.manager.counts(), none);
    pair.close();
    // One that is closed on the way. The passive side knows of that once it has answered.
    for stage in Stage::ALL.into_iter().filter(|stage| (Stage::Requested..Stage::Ready).contains(stage)) {
        let mut pair = Pair::at(stage);
        pair.active.close();
        let is_answered = stage >= Stage::Preparing;
        assert_eq!(count(&mut pair), [failed, if is_answered { failed } else { none }], "{stage:?}");
        pair.passive().close();
        assert_eq!(count(&mut pair), [failed; 2], "{stage:?}");
        pair.close();
    }

    // A connection that ends with a farewell, or with a close here, does not break.
    let mut pair = Pair::connected();
    pair.active.disconnect().unwrap();
    assert_eq!(count(&mut pair), [connected, ConnectionCounts { active: 1, ..accepted }], "the passive side may still flush");
    pair.passive().disconnect().unwrap();
    assert_eq!(count(&mut pair), [connected, accepted]);
    pair.close();
    let mut pair = Pair::connected();
    pair.active.disconnect().unwrap();
    pair.net.settle();
    let qpn = pair.passive().qp.qpn();
    pair.net.nodes[PASSIVE].card.event(EventKind::QpAccess as u8, qpn, 0x62);
    assert_eq!(count(&mut pair), [connected, accepted], "a fault behind a farewell");
    pair.close();
    let mut pair = Pair::connected();
    pair.passive().close();
    assert_eq!(count(&mut pair), [ConnectionCounts { broken: 1, ..connected }, accepted], "only the side that did not close");
    pair.close();
    // One that is lost breaks on both sides.
    let broken = [ConnectionCounts { broken: 1, ..connected }, ConnectionCounts { broken: 1, ..accepted }];
    for (kind, code) in [(EventKind::QpFatal, 10), (EventKind::QpAccess, 0x62)] {
        let mut pair = Pair::connected();
        let qpn = pair.active.qp.qpn();
        pair.net.nodes[ACTIVE].card.event(kind as u8, qpn, code);
        assert_eq!(count(&mut pair), broken);
        pair.close();
    }
    let mut pair = Pair::connected();
    pair.net.nodes[ACTIVE].card.state().is_gone = true;
    assert!(pair.net.nodes[ACTIVE].adapter.poll_command());
    assert_eq!(count(&mut pair), broken, "a card that is gone");
}

// Closing on the way.

/// What the other side is told when the active side closes at a stage: active calls, passive calls.
fn active_closes(stage: Stage) -> [Vec<Call>; 2] {
    use Call::{Accept, Closed, Complete, Connect, Event};
    match stage {
        // The passive side can't know before it has answered.
        Stage::Requesting | Stage::Requested => [vec![Connect(ABORTED), Closed], vec![]],
        Stage::Preparing | Stage::Accepted => [vec![Connect(ABORTED), Closed], vec![Accept(ABORTED)]],
        Stage::Answered => [vec![Connect(OK), Closed], vec![Accept(ABORTED)]],
        Stage::Completing => [vec![Connect(OK), Complete(ABORTED), Closed], vec![Accept(ABORTED)]],
        Stage::Ready | Stage::Activating => [vec![Connect(OK), Complete(OK), Closed], vec![Accept(ABORTED)]],
        Stage::Connected => [vec![Connect(OK), Complete(OK), Closed], vec![Accept(OK), Event]],
    }
}

#[test]
fn the_active_side_closes_at_every_stage() {
    for stage in Stage::ALL {
        let mut pair = Pair::at(stage);
        pair.active.close();
        // While the card still holds what it holds at that stage, so that the news comes in the middle of it.
        pair.net.process();
        assert_eq!(pair.outcome(), active_closes(stage), "{stage:?}");
        if stage <= Stage::Requested {
            pair.passive().accept().unwrap();
            assert_eq!(pair.outcome()[PASSIVE], [Call::Accept(ABORTED)], "{stage:?}");
        }
        let qps = pair.qps();
        if stage < Stage::Completing {
            pair.net.try_qps(1, [&qps[0], &qps[1]]);
        } else {
            assert_eq!(qps[0].state(), QpState::Error, "{stage:?}: it was connected, or on its way to it");
        }
        if stage == Stage::Connected {
            assert_eq!(qps[1].state(), QpState::Error, "an abort flushes");
        } else {
            let fresh = pair.net.nodes[ACTIVE].qp();
            if stage >= Stage::Completing {
                pair.net.try_qps(2, [&fresh, &qps[1]]);
            }
        }
        drop(qps);
        pair.close();
    }
}

#[test]
fn the_passive_side_closes_at_every_stage() {
    use Call::{Accept, Closed, Complete, Connect, Event};
    for stage in Stage::ALL.into_iter().filter(|stage| *stage >= Stage::Requested) {
        let mut pair = Pair::at(stage);
        pair.passive().close();
        pair.net.process();
        let expected = match stage {
            Stage::Requesting => unreachable!(),
            Stage::Requested => [vec![Connect(REFUSED)], vec![Closed]],
            Stage::Preparing => [vec![Connect(ABORTED)], vec![Accept(ABORTED), Closed]],
            // The active side hears of it when it goes on.
            Stage::Accepted | Stage::Answered => [vec![Connect(OK)], vec![Accept(ABORTED), Closed]],
            Stage::Completing => [vec![Connect(OK), Complete(ABORTED)], vec![Accept(ABORTED), Closed]],
            Stage::Ready | Stage::Activating => [vec![Connect(OK), Complete(OK), Event], vec![Accept(ABORTED), Closed]],
            Stage::Connected => [vec![Connect(OK), Complete(OK), Event], vec![Accept(OK), Closed]],
        };
        assert_eq!(pair.outcome(), expected, "{stage:?}");
        let qps = pair.qps();
        if stage < Stage::Ready {
            pair.net.try_qps(1, [&qps[0], &qps[1]]);
        } else {
            assert_eq!(qps[0].state(), QpState::Error, "{stage:?}: an abort flushes");
        }
        drop(qps);
        pair.close();
    }
}

#[test]
fn completing_what_the_acceptor_has_given_up_meanwhile_is_an_abort_and_no_misuse() {
    let mut pair = Pair::at(Stage::Answered);
    pair.passive().close();
    pair.net.settle();
    // NDKPI, NdkCompleteConnect: STATUS_CONNECTION_INVALID is for a call out of order, STATUS_CONNECTION_ABORTED for this.
    assert_eq!(pair.active.complete().unwrap_err().nt_status(), ABORTED);
    assert_eq!(pair.active.reject().unwrap_err().nt_status(), ABORTED);
    pair.close();
}

#[test]
fn a_rejection_of_an_answer_that_was_given_up_is_told_so() {
    let mut pair = Pair::at(Stage::Answered);
    pair.passive().close();
    pair.net.settle();
    assert_eq!(pair.active.reject().unwrap_err().nt_status(), ABORTED);
    pair.close();
}

#[test]
fn a_close_before_anything_happened_calls_back_once() {
    let net = Net::new();
    let mut end = net.nodes[0].end();
    end.close();
    net.process();
    assert_eq!(end.calls.all(), [Call::Closed]);
    drop(end);
    net.close();
}

#[test]
fn a_close_after_an_attempt_has_failed_waits_for_its_report() {
    let mut pair = Pair::at(Stage::Answered);
    pair.active.reject().unwrap();
    // The passive side's QP is put back by a command, and what has failed is reported behind it.
    pair.net.nodes[PASSIVE].hold(true);
    pair.net.process();
    assert_eq!(pair.passive().calls.all(), []);
    pair.passive().close();
    pair.net.process();
    assert_eq!(pair.outcome()[PASSIVE], [Call::Accept(REFUSED), Call::Closed]);
    pair.close();
}

#[test]
fn a_connector_can_be_closed_inside_the_callback_of_its_own_request() {
    let net = Net::new();
    let [active, passive] = &net.nodes;
    let calls = Calls::default();
    let slot: Arc<Mutex<Option<Arc<Connector>>>> = Arc::default();
    let (taken, noted) = (Arc::clone(&slot), calls.clone());
    let connector = active.manager.connector();
    *slot.lock().unwrap() = Some(Arc::clone(&connector));
    let done = move |outcome: Result<(), Error>| {
        noted.note(Call::Connect(outcome.unwrap_err().nt_status()));
        let connector = taken.lock().unwrap().take().unwrap();
        assert_eq!(connector.close(noted.closed()), CloseStatus::Pending);
    };
    let qp = active.qp();
    let _ = connector.connect(&qp, Source::Own(active.at(0)), passive.at(PORT), NO_LIMITS, &[], done).unwrap();
    drop(connector);
    net.process();
    assert_eq!(calls.all(), [Call::Connect(REFUSED), Call::Closed]);
    drop((qp, slot));
    net.close();
}

#[test]
fn a_connector_can_be_closed_inside_its_disconnect_event() {
    let mut pair = Pair::at(Stage::Answered);
    let slot = Arc::new(Mutex::new(pair.active.connector.take()));
    let (taken, noted) = (Arc::clone(&slot), pair.active.calls.clone());
    let event: DisconnectCallback = Box::new(move || {
        noted.note(Call::Event);
        let connector = taken.lock().unwrap().take().unwrap();
        assert_eq!(connector.close(noted.closed()), CloseStatus::Pending);
        assert_eq!(noted.all().last(), Some(&Call::Event), "the close is not over before the event is");
    });
    let connector = slot.lock().unwrap().clone().unwrap();
    let _ = connector.complete_connect(Some(event), pair.active.calls.done(Call::Complete)).unwrap();
    drop(connector);
    pair.net.settle();
    pair.passive().disconnect().unwrap();
    let [active, passive] = pair.outcome();
    assert_eq!(active, [Call::Connect(OK), Call::Complete(OK), Call::Event, Call::Closed]);
    assert_eq!(passive, [Call::Accept(OK), Call::Disconnect(OK)]);
    drop(slot);
    pair.passive().close();
    pair.net.settle();
    let Pair { net, waiting, active, passive } = pair;
    drop((waiting, active, passive));
    net.close();
}

// Calls that the state does not allow.

#[test]
fn what_the_state_does_not_allow_fails_inline_and_changes_nothing() {
    const INVALID: NtStatus = NtStatus::CONNECTION_INVALID;
    const ACTIVE_ALREADY: NtStatus = NtStatus::CONNECTION_ACTIVE;
    for stage in Stage::ALL {
        let mut pair = Pair::at(stage);
        for side in [ACTIVE, PASSIVE] {
            if side == PASSIVE && stage == Stage::Requesting {
                continue;
            }
            let [node, peer] = [side, 1 - side].map(|side| (pair.net.nodes[side].at(0), pair.net.nodes[side].at(PORT)));
            let fresh = pair.net.nodes[side].qp();
            let end = pair.end(side);
            let before = end.calls.all();
            let status = |outcome: Result<(), Error>| outcome.unwrap_err().nt_status();
            let again = end.connect_with(Source::Own(node.0), peer.1, NO_LIMITS, &[]);
            assert_eq!(status(again), ACTIVE_ALREADY, "connect, {stage:?}, {side}");
            if (side, stage) != (ACTIVE, Stage::Answered) {
                assert_eq!(status(end.complete()), INVALID, "complete, {stage:?}, {side}");
            }
            if (side, stage) != (PASSIVE, Stage::Requested) {
                let accepted = end.connector().accept(&fresh, NO_LIMITS, &[], None, |_| panic!("an inline error has no callback"));
                assert_eq!(status(started(accepted)), INVALID, "accept, {stage:?}, {side}");
            }
            if !matches!((side, stage), (ACTIVE, Stage::Answered) | (PASSIVE, Stage::Requested)) {
                assert_eq!(status(end.reject()), INVALID, "reject, {stage:?}, {side}");
            }
            let is_connected =
                stage == Stage::Connected || (side, stage) == (ACTIVE, Stage::Ready) || (side, stage) == (ACTIVE, Stage::Activating);
            if !is_connected {
                assert_eq!(status(end.disconnect()), INVALID, "disconnect, {stage:?}, {side}");
            }
            assert_eq!(end.calls.all(), before);
        }
        // And on it goes.
        pair.net.settle();
        if stage <= Stage::Requested {
            pair.passive().accept().unwrap();
            pair.net.settle();
        }
        if stage < Stage::Completing {
            pair.active.complete().unwrap();
        }
        assert_eq!(pair.outcome(), [vec![Call::Connect(OK), Call::Complete(OK)], vec![Call::Accept(OK)]], "{stage:?}");
        pair.close();
    }
}

#[test]
fn a_connector_that_is_new_or_over_has_nothing_to_complete_reject_or_disconnect() {
    let mut pair = Pair::connected();
    let new = pair.net.nodes[ACTIVE].end();
    for outcome in [new.complete(), new.accept(), new.disconnect()] {
        assert!(matches!(outcome, Err(Error::WrongConnector { state: "new", .. })), "{outcome:?}");
    }
    assert!(matches!(new.reject(), Err(Error::WrongConnector { state: "new", .. })));
    drop(new);

    pair.active.disconnect().unwrap();
    let error = pair.active.disconnect().unwrap_err();
    assert!(matches!(error, Error::WrongConnector { state: "disconnecting", .. }), "{error}");
    pair.net.settle();
    let error = pair.passive().connect_with(Source::Own("10.0.0.2:0".parse().unwrap()), "10.0.0.1:1".parse().unwrap(), NO_LIMITS, &[]);
    assert!(matches!(error, Err(Error::ConnectorUsed { state: "left by its peer" })), "{error:?}");
    let error = pair.active.disconnect().unwrap_err();
    assert!(matches!(error, Error::WrongConnector { state: "over", .. }), "{error}");
    assert_eq!(pair.outcome(), [vec![Call::Disconnect(OK)], vec![Call::Event]]);
    pair.close();
}

#[test]
fn a_qp_that_was_connected_is_refused_and_the_connector_goes_with_another() {
    let mut pair = Pair::connected();
    let [active, passive] = &pair.net.nodes;
    let used = Arc::clone(&pair.active.qp);
    let asks = active.end();
    let error = asks
        .connector()
        .connect(&used, Source::Own(active.at(7)), passive.at(PORT), NO_LIMITS, &[], |_| panic!("an inline error has no callback"))
        .unwrap_err();
    assert!(matches!(error, Error::WrongState { state: QpState::Rts, needed: "RESET", .. }), "{error}");
    assert_eq!(error.nt_status(), NtStatus::CONNECTION_ACTIVE);
    assert!(active.is_free(7), "nothing is kept of it");
    asks.connect(active, passive.at(PORT)).unwrap();
    pair.net.process();
    let answers = pair.waiting.take(passive);
    let used = Arc::clone(&pair.passive().qp);
    let error = answers.connector().accept(&used, NO_LIMITS, &[], None, |_| panic!("an inline error has no callback")).unwrap_err();
    assert!(matches!(error, Error::WrongState { state: QpState::Rts, .. }), "{error}");
    answers.accept().unwrap();
    pair.net.process();
    asks.complete().unwrap();
    pair.net.process();
    assert_eq!((asks.calls.all().len(), answers.calls.all()), (2, vec![Call::Accept(OK)]));
}

#[test]
fn a_qp_serves_one_attempt_at_a_time() {
    let mut pair = Pair::at(Stage::Answered);
    let [active, passive] = &pair.net.nodes;
    let other = End::new(active.manager.connector(), Arc::clone(&pair.active.qp));
    let outcome = other.connect(active, passive.at(PORT));
    assert!(outcome.is_err(), "the QP is another connector's, which would lose its connection when this one ends");
    drop(other);
    pair.active.complete().unwrap();
    pair.net.settle();
    assert_eq!(pair.active.qp.state(), QpState::Rts);
    pair.passive().disconnect().unwrap();
    assert_eq!(pair.outcome()[ACTIVE], [Call::Connect(OK), Call::Complete(OK), Call::Event]);
}

#[test]
fn a_qp_that_is_flushed_on_the_way_fails_the_call_that_needs_it() {
    let mut pair = Pair::at(Stage::Answered);
    pair.active.qp.flush();
    pair.net.settle();
    let error = pair.active.complete().unwrap_err();
    assert!(matches!(error, Error::NotConnected { state: QpState::Error, .. }), "{error}");
    assert_eq!(error.nt_status(), NtStatus::CONNECTION_INVALID);
    assert_eq!(pair.outcome(), [vec![Call::Connect(OK)], vec![Call::Accept(ABORTED)]]);
    pair.close();

    let mut pair = Pair::at(Stage::Completing);
    pair.active.qp.flush();
    let [active, passive] = pair.outcome();
    assert_eq!(active, [Call::Connect(OK), Call::Complete(NtStatus::CANCELLED)]);
    assert_eq!(passive, [Call::Accept(ABORTED)]);
    pair.close();

    let mut pair = Pair::at(Stage::Ready);
    pair.passive().qp.flush();
    let [active, passive] = pair.outcome();
    assert_eq!(active, [Call::Connect(OK), Call::Complete(OK), Call::Event]);
    assert_eq!(passive, [Call::Accept(NtStatus::CANCELLED)]);
    pair.close();
}

#[test]
fn a_qp_that_was_flushed_while_it_connected_is_refused_as_one_that_was_never_connected() {
    // During each of the three steps to RTS.
    for steps in 0..3 {
        let mut pair = Pair::at(Stage::Completing);
        let node = &pair.net.nodes[ACTIVE];
        for _ in 0..steps {
            node.card.step();
            node.step();
        }
        pair.active.qp.flush();
        pair.net.settle();
        let qp = Arc::clone(&pair.active.qp);
        pair.active.close();
        pair.net.settle();
        let node = &pair.net.nodes[ACTIVE];
        let end = End::new(node.manager.connector(), qp);
        let error = end.connect(node, pair.net.nodes[PASSIVE].at(PORT)).unwrap_err();
        assert!(matches!(error, Error::NotConnected { state: QpState::Error, .. }), "{steps} steps: {error}");
    }
}

#[test]
fn a_qp_that_was_flushed_before_is_refused_and_the_card_hears_nothing_of_it() {
    let pair = Pair::at(Stage::Requested);
    let node = &pair.net.nodes[ACTIVE];
    let qp = node.qp();
    let commands = node.card.state().commands.len();
    qp.flush();
    qp.flush();
    pair.net.settle();
    assert_eq!(node.card.state().commands.len(), commands, "it has no such QP in any state that can be left");
    let end = End::new(node.manager.connector(), qp);
    let error = end.connect(node, pair.net.nodes[PASSIVE].at(PORT)).unwrap_err();
    assert!(matches!(error, Error::NotConnected { state: QpState::Error, .. }), "{error}");
    drop(end);
}

#[test]
fn a_command_that_the_card_refuses_fails_the_attempt_on_both_sides() {
    let mut pair = Pair::at(Stage::Requested);
    pair.net.nodes[PASSIVE].card.state().refuse.push_back(3);
    pair.passive().accept().unwrap();
    assert_eq!(pair.outcome(), [vec![Call::Connect(ABORTED)], vec![Call::Accept(NtStatus::INTERNAL_ERROR)]]);
    let qps = pair.qps();
    pair.net.try_qps(1, [&qps[0], &qps[1]]);
    drop(qps);
    pair.close();

    let mut pair = Pair::at(Stage::Answered);
    pair.net.nodes[ACTIVE].card.state().refuse.push_back(3);
    pair.active.complete().unwrap();
    let complete = Call::Complete(NtStatus::INTERNAL_ERROR);
    assert_eq!(pair.outcome(), [vec![Call::Connect(OK), complete], vec![Call::Accept(ABORTED)]]);
    let qps = pair.qps();
    pair.net.try_qps(1, [&qps[0], &qps[1]]);
    drop(qps);
    pair.close();

    let mut pair = Pair::at(Stage::Ready);
    pair.net.nodes[PASSIVE].card.state().refuse.push_back(3);
    let [active, passive] = pair.outcome();
    assert_eq!(active, [Call::Connect(OK), Call::Complete(OK), Call::Event]);
    assert_eq!(passive, [Call::Accept(NtStatus::INTERNAL_ERROR)]);
    pair.close();
}

// Addresses.

#[test]
fn a_local_address_must_be_ours() {
    let net = Net::new();
    let [active, passive] = &net.nodes;
    let ends = active.end();
    for address in [passive.at(0), SocketAddr::from(([0, 0, 0, 0], 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 5))] {
        let errors = [
            ends.connect_with(Source::Own(address), passive.at(PORT), NO_LIMITS, &[]).unwrap_err(),
            active.manager.listener(Box::new(|_| ())).listen(address).unwrap_err(),
            active.manager.shared_endpoint(address).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::NotOurAddress { address: given } if given == address.ip()), "{error}");
            assert_eq!(error.nt_status(), NtStatus::INVALID_ADDRESS);
        }
    }
    ends.connect(active, passive.at(PORT)).unwrap();
}

#[test]
fn a_local_address_is_for_one_holder() {
    let net = Net::new();
    let [active, passive] = &net.nodes;
    let in_use = |port| {
        let busy = |error: Error| {
            assert!(matches!(error, Error::AddressInUse { address } if address == active.at(port)), "{error}");
            assert_eq!(error.nt_status(), NtStatus::SHARING_VIOLATION);
        };
        busy(active.end().connect_with(Source::Own(active.at(port)), passive.at(PORT), NO_LIMITS, &[]).unwrap_err());
        busy(active.manager.listener(Box::new(|_| ())).listen(active.at(port)).unwrap_err());
        busy(active.manager.shared_endpoint(active.at(port)).unwrap_err());
    };
    let listener = active.listen(1);
    let shared = active.manager.shared_endpoint(active.at(2)).unwrap();
    let mut asks = active.end();
    asks.connect_with(Source::Own(active.at(3)), passive.at(PORT), NO_LIMITS, &[]).unwrap();
    (1..=3).for_each(in_use);
    net.process();
    assert_eq!(asks.calls.all(), [Call::Connect(REFUSED)]);
    in_use(3);
    drop((listener, shared));
    asks.close();
    net.process();
    assert!([1, 2, 3].iter().all(|port| active.is_free(*port)));
    let listener = active.listen(4).listener;
    assert!(matches!(listener.listen(active.at(5)), Err(Error::ConnectorUsed { .. })), "a listener listens at one address");
    assert!(active.is_free(5));
}

#[test]
fn the_address_is_free_when_the_close_says_that_it_is_over() {
    let net = Net::new();
    let [active, passive] = &net.nodes;
    let mut asks = active.end();
    asks.connect_with(Source::Own(active.at(3)), passive.at(PORT), NO_LIMITS, &[]).unwrap();
    let (manager, at, calls) = (Arc::clone(&active.manager), active.at(3), asks.calls.clone());
    let _ = asks.connector.take().unwrap().close(move || {
        assert!(manager.shared_endpoint(at).is_ok());
        calls.note(Call::Closed);
    });
    net.process();
    assert_eq!(asks.calls.all(), [Call::Connect(ABORTED), Call::Closed]);
}

#[test]
fn port_0_is_a_free_one_for_all_that_have_an_address() {
    let net = Net::new();
    let [active, passive] = &net.nodes;
    let ends = [active.end(), active.end()];
    ends.iter().for_each(|end| end.connect(active, passive.at(PORT)).unwrap());
    let listener = active.listen(0).listener;
    let shared = active.manager.shared_endpoint(active.at(0)).unwrap();
    let addresses = [ends[0].connector().local_address().unwrap(), ends[1].connector().local_address().unwrap()];
    let mut ports: Vec<_> = addresses.into_iter().chain([listener.address().unwrap(), shared.address()]).map(|at| at.port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 4);
    assert!(ports[0] >= 49_152);
}

#[test]
fn all_ports_can_be_used_up() {
    let net = Net::new();
    let [active, passive] = &net.nodes;
    // By number: asking for a free one each time looks at all that are taken.
    let taken: Vec<SharedEndpoint> = (49_152..=65_535).map(|port| active.manager.shared_endpoint(active.at(port)).unwrap()).collect();
    let errors = [
        active.manager.shared_endpoint(active.at(0)).unwrap_err(),
        active.manager.listener(Box::new(|_| ())).listen(active.at(0)).unwrap_err(),
        active.end().connect(active, passive.at(PORT)).unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.nt_status() == NtStatus::TOO_MANY_ADDRESSES), "{errors:?}");
    drop(taken.into_iter().nth(7_000));
    assert!(active.manager.shared_endpoint(active.at(0)).is_ok());
}

#[test]
fn there_is_no_loopback_and_nobody_at_an_unknown_address() {
    let net = Net::new();
    let [active, _] = &net.nodes;
    let own = active.listen(PORT);
    let end = active.end();
    for to in [active.at(PORT), SocketAddr::from(([10, 0, 0, 99], PORT))] {
        let error = end.connect_with(Source::Own(active.at(9)), to, NO_LIMITS, &[]).unwrap_err();
        assert!(matches!(error, Error::HostUnreachable { address } if address == to.ip()), "{error}");
        assert!(active.is_free(9));
    }
    assert_eq!(own.count(), 0);
}

#[test]
fn an_adapter_that_is_gone_is_unreachable() {
    let Net { exchange, nodes: [active, passive] } = Net::new();
    let at = passive.at(PORT);
    drop(passive);
    let end = active.end();
    assert!(matches!(end.connect(&active, at), Err(Error::HostUnreachable { .. })));
    let again = Node::new(&exchange, Some(Ipv4Addr::new(10, 0, 0, 2)), None, 2, (0, 0));
    let waiting = again.listen(PORT);
    end.connect(&active, at).unwrap();
    again.step();
    assert_eq!(waiting.count(), 1);
}

#[test]
fn a_shared_endpoint_has_several_connections_but_each_once() {
    let net = Net::new();
    let [active, passive] = &net.nodes;
    let waiting = [passive.listen(1), passive.listen(2)];
    let shared = active.manager.shared_endpoint(active.at(7)).unwrap();
    let connect = |end: &End, port| end.connect_with(Source::Shared(&shared), passive.at(port), NO_LIMITS, &[]);
    let mut ends = [active.end(), active.end()];
    connect(&ends[0], 1).unwrap();
    connect(&ends[1], 2).unwrap();
    let third = active.end();
    let error = connect(&third, 1).unwrap_err();
    assert!(matches!(error, Error::ConnectionExists { local, peer } if (local, peer) == (active.at(7), passive.at(1))), "{error}");
    assert_eq!(error.nt_status(), NtStatus::ADDRESS_ALREADY_EXISTS);
    net.process();
    assert_eq!(ends.each_ref().map(|end| end.connector().local_address()), [Some(active.at(7)); 2]);
    // The first one ends: its place is free, also before it is closed.
    let refusing = waiting[0].take(passive);
    refusing.reject().unwrap();
    net.process();
    assert_eq!(ends[0].calls.all(), [Call::Connect(REFUSED)]);
    connect(&third, 1).unwrap();
    net.process();
    assert_eq!(waiting[0].count(), 1);

    // The address is free when the endpoint and all of its connections are gone.
    drop(shared);
    assert!(!active.is_free(7));
    let mut ends = vec![third].into_iter().chain(std::mem::replace(&mut ends, [active.end(), active.end()])).collect::<Vec<_>>();
    for end in &mut ends {
        assert!(!active.is_free(7));
        end.close();
        net.process();
    }
    assert!(active.is_free(7));
}

#[test]
fn a_connection_that_was_ended_leaves_its_place_at_a_shared_endpoint() {
    let net = Net::new();
    let [active, passive] = &net.nodes;
    let waiting = passive.listen(PORT);
    let shared = active.manager.shared_endpoint(active.at(7)).unwrap();
    for _ in 0..2 {
        let asks = active.end();
        asks.connect_with(Source::Shared(&shared), passive.at(PORT), NO_LIMITS, &[]).unwrap();
        net.process();
        let answers = waiting.take(passive);
        answers.accept().unwrap();
        net.process();
        asks.complete().unwrap();
        net.process();
        asks.disconnect().unwrap();
        net.process();
        assert_eq!(asks.calls.all(), [Call::Connect(OK), Call::Complete(OK), Call::Disconnect(OK)]);
    }
}

#[test]
fn a_listeners_address_is_free_when_the_connections_that_it_made_are_gone_too() {
    let mut pair = Pair::connected();
    let passive = &pair.net.nodes[PASSIVE];
    let other = passive.listen(9);
    drop(std::mem::replace(&mut pair.waiting, other));
    assert!(!pair.net.nodes[PASSIVE].is_free(PORT));
    let asks = pair.net.nodes[ACTIVE].end();
    asks.connect(&pair.net.nodes[ACTIVE], pair.net.nodes[PASSIVE].at(PORT)).unwrap();
    pair.net.process();
    assert_eq!(asks.calls.all(), [Call::Connect(REFUSED)], "nobody listens any more");
    pair.passive().close();
    assert_eq!(pair.outcome(), [vec![Call::Event], vec![Call::Closed]]);
    assert!(pair.net.nodes[PASSIVE].is_free(PORT));
}

#[test]
fn a_connection_over_ipv6_is_as_one_over_ipv4() {
    let exchange = Exchange::new();
    let ip = |number| Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, number);
    let nodes = [1u8, 2].map(|number| Node::new(&exchange, None, Some(ip(number.into())), number, (0, 0)));
    let net = Net { exchange, nodes };
    let qps = [0, 1].map(|side| net.nodes[side].qp());
    net.try_qps(PORT, [&qps[0], &qps[1]]);
    assert_eq!(qps[0].context().remote_ip, ip(2).octets());
    drop(qps);
    net.close();
}

#[test]
fn a_connection_runs_between_the_addresses_that_it_was_made_with() {
    let exchange = Exchange::new();
    let ip = |number| Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, number);
    // The passive side has an address of the other family as well, of which the active side knows nothing.
    let active = Node::new(&exchange, None, Some(ip(1)), 1, (0, 0));
    let mut passive = Node::new(&exchange, Some(Ipv4Addr::new(10, 0, 0, 2)), Some(ip(2)), 2, (0, 0));
    passive.ip = ip(2).into();
    let net = Net { exchange, nodes: [active, passive] };
    let qps = [0, 1].map(|side| net.nodes[side].qp());
    net.try_qps(PORT, [&qps[0], &qps[1]]);
}

// The end.

#[test]
fn a_farewell_is_told_once_and_does_not_flush_the_other_side() {
    let mut pair = Pair::connected();
    let qps = pair.qps();
    let mut queue = qps[PASSIVE].take_send_queue().unwrap();
    let mut receives = qps[PASSIVE].take_receive_queue().unwrap();
    receives.post(1, &[]).unwrap();
    pair.active.disconnect().unwrap();
    assert_eq!(pair.outcome(), [vec![Call::Disconnect(OK)], vec![Call::Event]]);
    assert_eq!([qps[0].state(), qps[1].state()], [QpState::Error, QpState::Rts]);
    assert_eq!(crate::drain(&pair.net.nodes[PASSIVE].cq), []);
    queue.write(2, &[], 0, 0, WriteFlags::NONE).unwrap();
    pair.passive().disconnect().unwrap();
    assert_eq!(pair.outcome(), [vec![Call::Disconnect(OK)], vec![Call::Event, Call::Disconnect(OK)]]);
    let contexts: Vec<_> = crate::drain(&pair.net.nodes[PASSIVE].cq).iter().map(|done| (done.context, done.status.is_success())).collect();
    assert_eq!(contexts, [(1, false), (2, true)]);
    drop((queue, receives, qps));
    pair.close();
}

#[test]
fn both_sides_may_disconnect_at_once() {
    let mut pair = Pair::connected();
    pair.active.disconnect().unwrap();
    pair.passive().disconnect().unwrap();
    assert_eq!(pair.outcome(), [vec![Call::Disconnect(OK)], vec![Call::Disconnect(OK)]]);
    pair.close();
}

#[test]
fn a_farewell_before_the_passive_side_knows_that_it_is_connected_fails_its_request() {
    for stage in [Stage::Ready, Stage::Activating] {
        let mut pair = Pair::at(stage);
        pair.active.disconnect().unwrap();
        pair.net.process();
        let [active, passive] = pair.outcome();
        assert_eq!(active.last(), Some(&Call::Disconnect(OK)), "{stage:?}");
        assert_eq!(passive, [Call::Accept(ABORTED)], "{stage:?}: no event for what never was");
        let fresh = pair.net.nodes[ACTIVE].qp();
        let qps = pair.qps();
        pair.net.try_qps(1, [&fresh, &qps[1]]);
        drop((fresh, qps));
        pair.close();
    }
}

#[test]
fn a_disconnect_waits_for_the_peer_and_for_the_card() {
    // The card is slow.
    let mut pair = Pair::connected();
    pair.net.nodes[ACTIVE].hold(true);
    pair.active.disconnect().unwrap();
    pair.net.process();
    assert_eq!((pair.active.calls.all(), pair.passive().calls.all()), (vec![], vec![Call::Event]));
    assert_eq!(pair.outcome()[ACTIVE], [Call::Disconnect(OK)]);
    pair.close();
    // The peer is.
    let mut pair = Pair::connected();
    pair.active.disconnect().unwrap();
    (0..20).for_each(|_| _ = pair.net.nodes[ACTIVE].step());
    assert_eq!(pair.active.calls.all(), []);
    assert_eq!(pair.outcome()[ACTIVE], [Call::Disconnect(OK)]);
    pair.close();
}

#[test]
fn a_disconnect_waits_for_the_card_also_when_the_peer_closes_meanwhile() {
    let mut pair = Pair::connected();
    pair.net.nodes[ACTIVE].hold(true);
    pair.active.disconnect().unwrap();
    pair.net.process();
    // The usual answer to a disconnect event.
    pair.passive().close();
    pair.net.process();
    assert_eq!(pair.passive().calls.all(), [Call::Event, Call::Closed]);
    assert_eq!(pair.active.calls.all(), [], "the card may still read what requests name");
    assert_eq!(pair.outcome()[ACTIVE], [Call::Disconnect(OK)]);
    pair.close();
}

#[test]
fn a_disconnect_behind_the_peers_waits_for_the_card_also_when_the_peer_closes_meanwhile() {
    let mut pair = Pair::connected();
    pair.net.nodes.iter().for_each(|node| node.hold(true));
    pair.active.disconnect().unwrap();
    pair.net.process();
    pair.passive().disconnect().unwrap();
    pair.active.close();
    pair.net.process();
    assert_eq!(pair.passive().calls.all(), [Call::Event], "the card may still read what requests name");
    assert_eq!(pair.outcome()[PASSIVE], [Call::Event, Call::Disconnect(OK)]);
    pair.close();
}

#[test]
fn a_peer_that_closes_in_place_of_an_answer_fails_the_disconnect() {
    let mut pair = Pair::connected();
    pair.active.disconnect().unwrap();
    pair.passive().close();
    // NDKPI: success when the peer's graceful notification has arrived, failure when an abort has.
    assert_eq!(pair.outcome(), [vec![Call::Disconnect(ABORTED)], vec![Call::Closed]]);
    pair.close();
}

#[test]
fn a_disconnect_from_a_peer_whose_adapter_is_gone_fails() {
    let Pair { net, waiting, active, passive } = Pair::connected();
    let Net { exchange: _exchange, nodes: [node, other] } = net;
    drop((waiting, passive));
    let Node { adapter, manager, pd, cq, spare, .. } = other;
    drop((manager, pd, cq, spare));
    processing(|| adapter.close_blocking()).unwrap();
    active.disconnect().unwrap();
    (0..10).for_each(|_| _ = node.step());
    assert_eq!(active.calls.all(), [Call::Disconnect(ABORTED)], "and no event behind the call");
}

#[test]
fn a_close_while_a_disconnect_pends_ends_it_first() {
    let mut pair = Pair::connected();
    pair.net.nodes[ACTIVE].hold(true);
    pair.active.disconnect().unwrap();
    pair.active.close();
    pair.net.process();
    assert_eq!(pair.active.calls.count(|call| *call == Call::Closed), 0, "the card is not done");
    assert_eq!(pair.outcome(), [vec![Call::Disconnect(ABORTED), Call::Closed], vec![Call::Event]]);
    pair.close();
}

#[test]
fn a_close_of_a_connection_waits_for_the_card() {
    let mut pair = Pair::connected();
    pair.net.nodes[ACTIVE].hold(true);
    pair.active.close();
    pair.net.process();
    assert_eq!((pair.active.calls.all(), pair.passive().calls.all()), (vec![], vec![Call::Event]));
    assert_eq!(pair.active.qp.state(), QpState::Error, "nothing can be posted from now on");
    assert_eq!(pair.outcome(), [vec![Call::Closed], vec![Call::Event]]);
    pair.close();
}

#[test]
fn a_request_that_fails_ends_the_connection_on_both_sides() {
    for side in [ACTIVE, PASSIVE] {
        let mut pair = Pair::connected();
        let qpn = pair.end(side).qp.qpn();
        let mut queue = pair.end(side).qp.take_send_queue().unwrap();
        pair.net.nodes[side].card.state().hold_requests = true;
        queue.write(1, &[], 0, 0, WriteFlags::NONE).unwrap();
        pair.net.nodes[side].card.fail(qpn, CqeStatus::RetryExceeded, 0);
        assert_eq!(pair.outcome(), [vec![Call::Event], vec![Call::Event]]);
        let qps = pair.qps();
        assert_eq!([qps[0].state(), qps[1].state()], [QpState::Error; 2]);
        drop((queue, qps));
        pair.close();
    }
}

#[test]
fn a_fault_on_both_sides_is_told_once_on_each() {
    let mut pair = Pair::connected();
    let qps = pair.qps();
    for (node, qp) in pair.net.nodes.iter().zip(&qps) {
        node.card.event(EventKind::QpAccess as u8, qp.qpn(), 0x62);
        node.card.event(EventKind::QpFatal as u8, qp.qpn(), 10);
    }
    drop(qps);
    assert_eq!(pair.outcome(), [vec![Call::Event], vec![Call::Event]]);
    pair.close();
}

#[test]
fn a_fault_behind_a_farewell_is_no_second_event() {
    let mut pair = Pair::connected();
    pair.active.disconnect().unwrap();
    pair.net.settle();
    let qpn = pair.passive().qp.qpn();
    pair.net.nodes[PASSIVE].card.event(EventKind::QpAccess as u8, qpn, 0x62);
    assert_eq!(pair.outcome(), [vec![Call::Disconnect(OK)], vec![Call::Event]]);
    pair.close();
}

#[test]
fn a_fault_before_the_passive_side_knows_that_it_is_connected_fails_its_request() {
    for stage in [Stage::Answered, Stage::Ready, Stage::Activating] {
        let mut pair = Pair::at(stage);
        let qpn = pair.passive().qp.qpn();
        pair.net.nodes[PASSIVE].card.event(EventKind::QpAccess as u8, qpn, 0x62);
        pair.net.settle();
        if stage == Stage::Answered {
            let _ = pair.active.complete();
        }
        let [active, passive] = pair.outcome();
        assert!(matches!(passive[..], [Call::Accept(status)] if status != OK), "{stage:?}: {passive:?}");
        assert_eq!(active.iter().filter(|call| **call == Call::Event).count(), usize::from(active.contains(&Call::Complete(OK))));
        pair.close();
    }
}

#[test]
fn the_fault_of_a_connection_that_was_taken_over_is_told_to_its_new_connector() {
    // The QP's first attempt fails; the second one is the one that is told.
    let mut pair = Pair::at(Stage::Requested);
    pair.passive().accept().unwrap();
    pair.net.settle();
    pair.active.reject().unwrap();
    pair.net.settle();
    let [active, passive] = &pair.net.nodes;
    let asks = active.end();
    asks.connect(active, passive.at(PORT)).unwrap();
    pair.net.process();
    let qp = Arc::clone(&pair.passive.as_ref().unwrap().qp);
    let answers = End::new(pair.waiting.requests.lock().unwrap().remove(0), Arc::clone(&qp));
    answers.accept().unwrap();
    pair.net.process();
    asks.complete().unwrap();
    pair.net.process();
    passive.card.event(EventKind::QpAccess as u8, qp.qpn(), 0x62);
    pair.net.process();
    assert_eq!(answers.calls.all(), [Call::Accept(OK), Call::Event]);
    assert_eq!(asks.calls.all(), [Call::Connect(OK), Call::Complete(OK), Call::Event]);
    assert_eq!(pair.passive().calls.all(), [Call::Accept(REFUSED)]);
}

#[test]
fn an_event_is_optional() {
    let pair = Pair::at(Stage::Answered);
    let _ = pair.active.connector().complete_connect(None, pair.active.calls.done(Call::Complete)).unwrap();
    pair.net.settle();
    pair.passive.as_ref().unwrap().disconnect().unwrap();
    pair.net.settle();
    assert_eq!(pair.active.calls.all(), [Call::Connect(OK), Call::Complete(OK)]);
    pair.close();
}

#[test]
fn a_card_that_goes_away_ends_everything_once() {
    for stage in Stage::ALL {
        let mut pair = Pair::at(stage);
        let node = &pair.net.nodes[ACTIVE];
        node.card.state().is_gone = true;
        // The way by which a driver without interrupts finds out.
        node.adapter.poll_command();
        pair.net.process();
        let calls = pair.active.calls.all();
        assert!(calls.iter().any(|call| matches!(call, Call::Connect(_))), "{stage:?}: {calls:?} before the close");
        pair.active.close();
        pair.net.process();
        let calls = pair.active.calls.all();
        assert_eq!(calls.iter().filter(|call| **call == Call::Closed).count(), 1, "{stage:?}: {calls:?}");
        assert_eq!(calls.last(), Some(&Call::Closed), "{stage:?}: {calls:?}");
        assert!(calls.iter().any(|call| matches!(call, Call::Connect(_))), "{stage:?}: {calls:?}");
    }
}

#[test]
fn an_answer_can_not_be_completed_on_a_card_that_is_gone() {
    let pair = Pair::at(Stage::Answered);
    let node = &pair.net.nodes[ACTIVE];
    node.card.state().is_gone = true;
    assert!(node.adapter.poll_command());
    pair.net.process();
    let error = pair.active.complete().unwrap_err();
    assert!(matches!(error, Error::DeviceRemoved { .. }), "{error}");
}

#[test]
fn a_passive_card_that_goes_away_ends_an_acceptance_that_waits_for_its_peer() {
    let mut pair = Pair::at(Stage::Answered);
    let node = &pair.net.nodes[PASSIVE];
    node.card.state().is_gone = true;
    assert!(node.adapter.poll_command());
    let [active, passive] = pair.outcome();
    assert_eq!(passive, [Call::Accept(NtStatus::DEVICE_REMOVED)]);
    assert_eq!(active, [Call::Connect(OK)]);
    let error = pair.active.complete().unwrap_err();
    assert!(matches!(error, Error::ConnectionAborted), "{error}");
}

#[test]
fn a_card_that_goes_away_without_a_command_ends_the_connection_on_both_sides() {
    let mut pair = Pair::connected();
    let node = &pair.net.nodes[ACTIVE];
    node.card.state().is_gone = true;
    assert!(node.adapter.poll_command());
    assert_eq!(pair.outcome(), [[Call::Event], [Call::Event]]);
}

#[test]
fn a_message_for_a_connector_that_is_gone_reaches_none_of_the_same_adapter_opened_anew() {
    // Two requests of one address wait, the first of a connector that was closed.
    let Net { exchange, nodes: [active, passive] } = Net::new();
    let waiting = passive.listen(PORT);
    let mut old = active.end();
    old.connect(&active, passive.at(PORT)).unwrap();
    passive.step();
    old.close();
    while active.step() > 0 {}
    drop(old);
    let Node { adapter, manager, pd, cq, spare, .. } = active;
    drop((manager, pd, cq, spare));
    processing(|| adapter.close_blocking()).unwrap();
    let active = Node::new(&exchange, Some(Ipv4Addr::new(10, 0, 0, 1)), None, 1, (0, 0));
    let new = active.end();
    new.connect(&active, passive.at(PORT)).unwrap();
    passive.step();
    let [first, second] = [(); 2].map(|()| waiting.take(&passive));
    first.accept_with(NO_LIMITS, b"old").unwrap();
    passive.step();
    active.step();
    assert_eq!(new.calls.all(), [], "that was for another");
    passive.step();
    second.accept_with(NO_LIMITS, b"new").unwrap();
    passive.step();
    active.step();
    assert_eq!(new.calls.all(), [Call::Connect(OK)]);
    assert_eq!(new.data(), b"new");
}

// Anything, in any order.

/// What a side does.
#[derive(Clone, Copy, Debug)]
enum Act {
    Connect,
    /// Says yes to everything that is to be answered.
    GoOn,
    Accept,
    Reject,
    Complete,
    Disconnect,
    Close,
    Fault,
    Flush,
    /// One step.
    Process,
    /// The card starts or stops to hold commands.
    Hold(bool),
    /// It executes one of them.
    Execute,
}

fn act() -> impl Strategy<Value = (usize, usize, Act)> {
    let act = prop_oneof![
        3 => Just(Act::Connect),
        8 => Just(Act::GoOn),
        2 => Just(Act::Accept),
        1 => Just(Act::Reject),
        2 => Just(Act::Complete),
        3 => Just(Act::Disconnect),
        2 => Just(Act::Close),
        1 => Just(Act::Fault),
        1 => Just(Act::Flush),
        16 => Just(Act::Process),
        2 => any::<bool>().prop_map(Act::Hold),
        3 => Just(Act::Execute),
    ];
    (0..2usize, 0..6usize, act)
}

/// Most connections of a program. Each has a spare QP at both ends.
const CONNECTIONS: u8 = 6;

/// A connector, and what it owes.
struct Record {
    end: End,
    /// Number of the connection, the same at both ends.
    id: u8,
    /// Requests that pended, by kind: connect, complete, accept, disconnect.
    pended: [usize; 4],
    /// This end has called disconnect or close.
    has_left: bool,
}

impl Record {
    fn new(end: End, id: u8) -> Self {
        Self { end, id, pended: [0; 4], has_left: false }
    }

    fn called(&self) -> [usize; 4] {
        let count = |is_meant: fn(&Call) -> bool| self.end.calls.count(is_meant);
        [
            count(|call| matches!(call, Call::Connect(_))),
            count(|call| matches!(call, Call::Complete(_))),
            count(|call| matches!(call, Call::Accept(_))),
            count(|call| matches!(call, Call::Disconnect(_))),
        ]
    }

    fn was_connected(&self) -> bool {
        self.end.calls.count(|call| matches!(call, Call::Complete(OK) | Call::Accept(OK))) == 1
    }
}

/// Both sides, each of which asks and listens.
struct Program {
    net: Net,
    waiting: [Waiting; 2],
    records: [Vec<Record>; 2],
    last_id: u8,
}

impl Program {
    fn new() -> Self {
        let net = Net::new();
        let waiting = [net.nodes[0].listen(PORT), net.nodes[1].listen(PORT)];
        Self { net, waiting, records: [Vec::new(), Vec::new()], last_id: 0 }
    }

    fn run(&mut self, side: usize, which: usize, act: Act) {
        let node = &self.net.nodes[side];
        match act {
            Act::Process => {
                node.step();
                while self.waiting[side].count() > 0 {
                    let end = self.waiting[side].take(node);
                    let id = end.data()[0];
                    self.records[side].push(Record::new(end, id));
                }
                return;
            }
            Act::Hold(is_held) => return node.hold(is_held),
            Act::Execute => {
                node.card.step();
                return;
            }
            Act::GoOn => {
                for which in 0..self.records[side].len() {
                    self.run(side, which, Act::Accept);
                    self.run(side, which, Act::Complete);
                }
                return;
            }
            Act::Connect => {
                if self.last_id == CONNECTIONS {
                    return;
                }
                let end = node.end();
                self.last_id += 1;
                let to = self.net.nodes[1 - side].at(PORT);
                end.connect_with(Source::Own(node.at(0)), to, NO_LIMITS, &[self.last_id]).unwrap();
                let mut record = Record::new(end, self.last_id);
                record.pended[0] = 1;
                return self.records[side].push(record);
            }
            _ => {}
        }
        let count = self.records[side].len();
        if count == 0 {
            return;
        }
        let record = &mut self.records[side][which % count];
        if record.end.connector.is_none() {
            return;
        }
        match act {
            Act::Complete => record.pended[1] += usize::from(record.end.complete().is_ok()),
            Act::Accept => record.pended[2] += usize::from(record.end.accept().is_ok()),
            Act::Disconnect => {
                let is_pending = record.end.disconnect().is_ok();
                record.pended[3] += usize::from(is_pending);
                record.has_left |= is_pending;
            }
            Act::Reject => drop(record.end.reject()),
            Act::Close => {
                record.has_left = true;
                record.end.close();
            }
            Act::Fault => node.card.event(EventKind::QpAccess as u8, record.end.qp.qpn(), 0x62),
            Act::Flush => record.end.qp.flush(),
            Act::Connect | Act::GoOn | Act::Process | Act::Hold(_) | Act::Execute => {}
        }
    }

    /// Lets everything happen, and checks what must be so before anything more is closed.
    fn check_rest(&mut self) {
        for _ in 0..3 {
            self.net.settle();
            (0..2).for_each(|side| self.run(side, 0, Act::Process));
        }
        self.net.settle();
        for side in 0..2 {
            for record in &self.records[side] {
                let (calls, called) = (record.end.calls.all(), record.called());
                assert_eq!(called[1], record.pended[1], "completions of a connection end by themselves: {calls:?}");
                assert_eq!(called[3], record.pended[3], "disconnects end by themselves: {calls:?}");
                let peer = self.records[1 - side].iter().find(|peer| peer.id == record.id);
                let Some(peer) = peer.filter(|_| record.was_connected()) else { continue };
                let events = record.end.calls.count(|call| *call == Call::Event);
                let peer_calls = peer.end.calls.all();
                if !record.has_left && peer.has_left {
                    assert_eq!(events, 1, "{calls:?} and the peer {peer_calls:?}");
                }
                if events == 0 && !record.has_left && peer.was_connected() {
                    assert!(!peer_calls.contains(&Call::Event), "one side knows of an end: {calls:?} {peer_calls:?}");
                }
            }
        }
    }

    fn close(mut self) {
        for records in &mut self.records {
            records.iter_mut().filter(|record| record.end.connector.is_some()).for_each(|record| record.end.close());
        }
        self.net.settle();
        for record in self.records.iter().flatten() {
            let calls = record.end.calls.all();
            assert_eq!(record.called(), record.pended, "every pending request is called once: {calls:?}");
            assert_eq!(record.end.calls.count(|call| *call == Call::Closed), 1, "{calls:?}");
            assert_eq!(calls.last(), Some(&Call::Closed), "nothing is called behind the close: {calls:?}");
            assert!(record.end.calls.count(|call| *call == Call::Event) <= usize::from(record.was_connected()), "{calls:?}");
        }
        for (side, node) in self.net.nodes.iter().enumerate() {
            let (records, others) = (&self.records[side], &self.records[1 - side]);
            let count = |is_meant: fn(&Record) -> bool| records.iter().filter(|record| is_meant(record)).count() as u64;
            let expected = ConnectionCounts {
                connected: count(|record| record.end.calls.count(|call| *call == Call::Complete(OK)) == 1),
                accepted: count(|record| record.end.calls.count(|call| *call == Call::Accept(OK)) == 1),
                failed: count(|record| !record.was_connected()),
                broken: node.manager.counts().broken,
                active: 0,
            };
            assert_eq!(node.manager.counts(), expected);
            // What breaks is told, and so is a farewell, which takes a peer that disconnects.
            let told: Vec<_> = records.iter().filter(|record| record.end.calls.count(|call| *call == Call::Event) == 1).collect();
            let has_no_farewell = |record: &&&Record| !others.iter().any(|peer| peer.id == record.id && peer.pended[3] > 0);
            let lost = told.iter().filter(has_no_farewell).count() as u64;
            assert!(
                (lost..=told.len() as u64).contains(&expected.broken),
                "{} broken, of {}, {lost} for sure",
                expected.broken,
                told.len()
            );
        }
        let Self { net, waiting, records, .. } = self;
        drop((waiting, records));
        assert!(net.nodes.iter().all(|node| node.is_free(PORT)));
        net.close();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn whatever_both_sides_do_everybody_is_told_once_and_everything_closes(acts in proptest::collection::vec(act(), 0..120)) {
        let mut program = Program::new();
        for (side, which, act) in acts {
            program.run(side, which, act);
        }
        program.check_rest();
        program.close();
    }
}
