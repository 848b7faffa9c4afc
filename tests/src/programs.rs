//! Random programs of an NDK consumer, and the small model of the contract that they are held to.
//!
//! A program creates pairs of QPs, connects them, posts with flags of all kinds, flushes, disconnects, closes, arms, moderates, and polls, in any
//! order, over a link that may lose, repeat, reorder and corrupt frames. The model knows what was accepted, not when anything happens. It demands:
//!
//! * each accepted request makes one entry at most, and exactly one unless it was silent and succeeded;
//! * entries of a queue come in the order of posting; behind one that failed every request has an entry, silent or not;
//! * a write that succeeded has its bytes in the peer's memory, and nothing is anywhere else;
//! * nothing is refused while the connection is whole and the queue has room;
//! * when everything is closed, the cards reach no more memory than before, and no callback comes any more.

use proptest::prelude::*;
use verbena_ndk::abi::*;
use verbena_sim::LinkConfig;

use crate::ndk::{on_done, Bench, Call, Connected, Entry, QpSize, Region, Slot, CONNECTION_INVALID, PENDING, SUCCESS};
use crate::{close, ndk};

/// Bytes of a write's own place in the peer's memory.
const PLACE: usize = 128;
/// Most writes of a program, each of which has its own place.
const PLACES: usize = 512;
/// Most pairs of QPs of a program.
const MOST_PAIRS: usize = 6;
/// Steps that a flush may take.
const PATIENCE: usize = 200;
/// Longest write.
const LONGEST: usize = 96;
/// `STATUS_NO_MORE_ENTRIES`.
const NO_MORE_ENTRIES: NTSTATUS = crate::ndk::nt(verbena_host::ndk::NtStatus::NO_MORE_ENTRIES);

/// A program: what a consumer does, in order.
#[derive(Clone, Debug)]
pub struct Program(Vec<Op>);

/// One step. `pair` is taken modulo what there is.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// Two QPs with queues of `depth`, connected.
    Connect { depth: u32 },
    /// A write of `len` bytes with flags; `fault` spoils one token.
    Write { pair: usize, side: usize, flags: u32, len: usize, fault: Fault },
    /// A receive.
    Receive { pair: usize, side: usize },
    /// `NdkFlush`.
    Flush { pair: usize, side: usize },
    /// `NdkDisconnect`.
    Disconnect { pair: usize, side: usize },
    /// `NdkCloseConnector`.
    CloseConnector { pair: usize, side: usize },
    /// `NdkArmCq`.
    Arm { side: usize, kind: u32 },
    /// `NdkControlCqInterruptModeration`.
    Moderate { side: usize, interval: u32, count: u32 },
    /// Up to `most` entries are taken.
    Poll { side: usize, most: usize },
    /// Time passes.
    Run { steps: u32 },
}

/// What is wrong with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Nothing.
    None,
    /// Its local token.
    Local,
    /// Its remote token.
    Remote,
}

/// Returns the programs of up to `longest` steps.
pub fn programs(longest: usize) -> impl Strategy<Value = Program> {
    let which = || (0usize..8, 0usize..2);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(silent, fence, inline, defer)| {
        let bit = |set, flag| if set { flag } else { 0 };
        bit(silent, NDK_OP_FLAG_SILENT_SUCCESS)
            | bit(fence, NDK_OP_FLAG_READ_FENCE)
            | bit(inline, NDK_OP_FLAG_INLINE)
            | bit(defer, NDK_OP_FLAG_DEFER)
    });
    let fault = prop_oneof![40 => Just(Fault::None), 1 => Just(Fault::Local), 1 => Just(Fault::Remote)];
    let write =
        (which(), flags, 0..=LONGEST, fault).prop_map(|((pair, side), flags, len, fault)| Op::Write { pair, side, flags, len, fault });
    let op = prop_oneof![
        3 => (1u32..9).prop_map(|depth| Op::Connect { depth }),
        40 => write,
        3 => which().prop_map(|(pair, side)| Op::Receive { pair, side }),
        2 => which().prop_map(|(pair, side)| Op::Flush { pair, side }),
        1 => which().prop_map(|(pair, side)| Op::Disconnect { pair, side }),
        1 => which().prop_map(|(pair, side)| Op::CloseConnector { pair, side }),
        4 => (0usize..2, 0u32..3).prop_map(|(side, kind)| Op::Arm { side, kind }),
        1 => (0usize..2, 0u32..40, 0u32..9).prop_map(|(side, interval, count)| Op::Moderate { side, interval, count }),
        10 => (0usize..2, 1usize..20).prop_map(|(side, most)| Op::Poll { side, most }),
        10 => (1u32..30).prop_map(|steps| Op::Run { steps }),
    ];
    prop::collection::vec(op, 1..longest).prop_map(|mut ops| {
        ops.insert(0, Op::Connect { depth: 8 });
        Program(ops)
    })
}

/// A request that was accepted.
#[derive(Clone, Debug)]
struct Posted {
    request: u64,
    is_silent: bool,
    bytes: Vec<u8>,
    status: Option<NTSTATUS>,
}

/// A queue of a QP, as the model knows it.
#[derive(Debug, Default)]
struct Queue {
    posted: Vec<Posted>,
    /// Requests whose entries, if they make any, are there.
    passed: usize,
}

impl Queue {
    /// Takes an entry: it is of a request that is outstanding, and of none but silent ones has an entry been left out before it.
    fn enter(&mut self, entry: &Entry) {
        let found = self.posted[self.passed..].iter().position(|posted| posted.request == entry.request);
        let Some(distance) = found else { panic!("an entry of no request that is outstanding: {entry:x?}, {} passed", self.passed) };
        let index = self.passed + distance;
        let failed = self.posted[..self.passed].iter().any(|posted| posted.status.is_some_and(|status| status != SUCCESS));
        for posted in &self.posted[self.passed..index] {
            assert!(posted.is_silent, "the entry of request {} is left out", posted.request);
            assert!(!failed, "silent request {} behind one that failed has no entry", posted.request);
        }
        assert!(!self.posted[index].is_silent || entry.status != SUCCESS, "silent request {} has succeeded aloud", entry.request);
        assert!(!failed || entry.status != SUCCESS, "request {} has succeeded behind one that failed", entry.request);
        self.posted[index].status = Some(entry.status);
        self.passed = index + 1;
    }

    /// Checks that everything is over.
    fn check(&self) {
        let failed = self.posted.iter().any(|posted| posted.status.is_some_and(|status| status != SUCCESS));
        for posted in &self.posted[self.passed..] {
            assert!(posted.is_silent && !failed, "request {} has no entry", posted.request);
        }
    }

    /// Tells whether every request that must make an entry has made it.
    fn is_quiet(&self) -> bool {
        self.posted[self.passed..].iter().all(|posted| posted.is_silent)
    }

    /// Most requests that can still take a slot.
    fn outstanding(&self) -> usize {
        self.posted.len() - self.passed
    }
}

/// Two QPs.
struct Pair {
    connected: Connected,
    depth: u32,
    initiators: [Queue; 2],
    receives: [Queue; 2],
    /// Nothing has been done to it that ends it.
    is_whole: bool,
    /// Closes of connectors that are under way.
    closing: [Option<&'static Slot>; 2],
    disconnects: Vec<&'static Slot>,
}

/// Returns two cards for programs, whose link loses `loss_ppm` of a million frames, repeats and reorders as many, and corrupts half as many.
pub fn bench(loss_ppm: u32) -> Bench {
    let link = LinkConfig { loss_ppm, duplicate_ppm: loss_ppm, reorder_ppm: loss_ppm, corrupt_ppm: loss_ppm / 2, ..LinkConfig::default() };
    // The shortest timeout there is, and all retries.
    Bench::with_retries(link, (loss_ppm != 0).then_some((1, 7)))
}

/// Runs a program.
///
/// # Panics
/// If the model finds something that is not as it should be.
pub fn run(bench: &mut Bench, program: &Program) {
    let before = [0, 1].map(|side| bench.sides[side].card.mappings());
    let mut run = Run::new(bench);
    for op in &program.0 {
        run.step(*op);
    }
    run.end();
    for (side, before) in bench.sides.iter().zip(before) {
        assert_eq!(side.card.mappings(), before, "memory that the card still reaches");
    }
}

struct Run<'a> {
    bench: &'a mut Bench,
    pds: [*mut NDK_PD; 2],
    cqs: [(*mut NDK_CQ, &'static Slot); 2],
    sources: [Region; 2],
    sinks: [Region; 2],
    pairs: Vec<Pair>,
    next_request: usize,
    arms: [usize; 2],
}

impl<'a> Run<'a> {
    fn new(bench: &'a mut Bench) -> Self {
        let pds = [0, 1].map(|side| bench.pd(side));
        // Room for everything that a program can have outstanding.
        let cqs = [0, 1].map(|side| bench.cq(side, 1024));
        let sources = [0, 1].map(|side| bench.region(pds[side], PLACE * PLACES, NDK_MR_FLAG_ALLOW_LOCAL_READ));
        let sinks = [0, 1].map(|side| bench.region(pds[side], PLACE * PLACES, NDK_MR_FLAG_ALLOW_REMOTE_WRITE));
        Self { bench, pds, cqs, sources, sinks, pairs: Vec::new(), next_request: 0, arms: [0; 2] }
    }

    fn step(&mut self, op: Op) {
        let count = self.pairs.len();
        match op {
            Op::Connect { depth } if count < MOST_PAIRS => self.connect(depth),
            Op::Connect { .. } => {}
            Op::Write { pair, side, flags, len, fault } => self.write(pair % count, side, flags, len, fault),
            Op::Receive { pair, side } => self.receive(pair % count, side),
            Op::Flush { pair, side } => {
                let pair = &mut self.pairs[pair % count];
                pair.is_whole = false;
                ndk!(pair.connected.qps[side], NdkFlush());
            }
            Op::Disconnect { pair, side } => {
                let (pair, slot) = (&mut self.pairs[pair % count], self.bench.slot());
                if pair.closing[side].is_none() {
                    pair.is_whole = false;
                    if ndk!(pair.connected.connectors[side], NdkDisconnect(Some(on_done), slot.context())) == PENDING {
                        pair.disconnects.push(slot);
                    }
                }
            }
            Op::CloseConnector { pair, side } => self.close_connector(pair % count, side),
            Op::Arm { side, kind } => {
                self.arms[side] += 1;
                ndk!(self.cqs[side].0, NdkArmCq(kind));
            }
            Op::Moderate { side, interval, count } => {
                assert_eq!(ndk!(self.cqs[side].0, NdkControlCqInterruptModeration(interval, count)), SUCCESS);
            }
            Op::Poll { side, most } => {
                self.poll(side, most);
            }
            Op::Run { steps } => (0..steps).for_each(|_| self.bench.step()),
        }
    }

    fn connect(&mut self, depth: u32) {
        let number = self.pairs.len() as u64;
        let qps = [0, 1].map(|side| {
            let context = number << 8 | side as u64;
            let size = QpSize { context, receives: depth, initiators: depth, inline_bytes: LONGEST as u32, ..QpSize::default() };
            self.bench.qp(self.pds[side], self.cqs[side].0, self.cqs[side].0, size)
        });
        self.pairs.push(Pair {
            connected: self.bench.connect(qps),
            depth,
            initiators: Default::default(),
            receives: Default::default(),
            is_whole: true,
            closing: [None; 2],
            disconnects: Vec::new(),
        });
    }

    fn write(&mut self, index: usize, side: usize, flags: u32, len: usize, fault: Fault) {
        let place = self.next_request;
        if place == PLACES {
            return;
        }
        self.next_request += 1;
        let bytes: Vec<u8> = (0..len).map(|at| (place * 31 + at * 7) as u8 & 0x7F).collect();
        let (source, sink) = (&self.sources[side], &self.sinks[1 - side]);
        source.fill(place * PLACE, &bytes);
        let spoiled = |token: u32, when: Fault| if fault == when { token ^ 0x40 } else { token };
        let half = len / 2;
        let mut sges = [source.sge(place * PLACE, half as u32), source.sge(place * PLACE + half, (len - half) as u32)];
        sges.iter_mut().for_each(|sge| sge.MemoryRegionToken = spoiled(source.token, Fault::Local));
        let pair = &mut self.pairs[index];
        let is_full = pair.initiators[side].outstanding() >= pair.depth as usize;
        let remote = sink.va(place * PLACE);
        match self.bench.write(pair.connected.qps[side], place as u64, &sges, remote, spoiled(sink.token, Fault::Remote), flags) {
            SUCCESS => {
                // A write of no bytes looks at no token, and inline data has no local one.
                let is_inline = flags & NDK_OP_FLAG_INLINE != 0;
                pair.is_whole &= fault == Fault::None || len == 0 || (fault == Fault::Local && is_inline);
                let is_silent = flags & NDK_OP_FLAG_SILENT_SUCCESS != 0;
                pair.initiators[side].posted.push(Posted { request: place as u64, is_silent, bytes, status: None });
            }
            NO_MORE_ENTRIES => assert!(is_full, "a queue of {} that holds fewer is full", pair.depth),
            CONNECTION_INVALID => assert!(!pair.is_whole, "a connection that nobody has ended is over"),
            other => panic!("a write gave {other:#x}"),
        }
    }

    fn receive(&mut self, index: usize, side: usize) {
        let pair = &mut self.pairs[index];
        let queue = &mut pair.receives[side];
        let request = queue.posted.len() as u64;
        match ndk!(pair.connected.qps[side], NdkReceive(request as PVOID, std::ptr::null(), 0)) {
            SUCCESS => queue.posted.push(Posted { request, is_silent: false, bytes: Vec::new(), status: None }),
            NO_MORE_ENTRIES => assert!(queue.outstanding() >= pair.depth as usize, "a queue that is not full is full"),
            CONNECTION_INVALID => assert!(!pair.is_whole, "a connection that nobody has ended is over"),
            other => panic!("a receive gave {other:#x}"),
        }
    }

    fn close_connector(&mut self, index: usize, side: usize) {
        let pair = &mut self.pairs[index];
        if pair.closing[side].is_none() {
            pair.is_whole = false;
            let connector = pair.connected.connectors[side];
            // SAFETY: the connector is live, and not used any more.
            let close = unsafe { (*(*connector).Dispatch).NdkCloseConnector };
            pair.closing[side] = Some(self.bench.close_object(close, connector.cast()));
        }
    }

    /// Takes entries and holds them against the model. Returns how many there were.
    fn poll(&mut self, side: usize, most: usize) -> usize {
        let entries = self.bench.take(self.cqs[side].0, most);
        for entry in &entries {
            let (number, from) = ((entry.qp >> 8) as usize, (entry.qp & 0xFF) as usize);
            assert!(number < self.pairs.len() && from == side, "an entry of no QP of this side: {entry:x?}");
            let pair = &mut self.pairs[number];
            match entry.operation {
                1 => pair.receives[side].enter(entry),
                64 => pair.initiators[side].enter(entry),
                other => panic!("an entry of kind {other}"),
            }
        }
        entries.len()
    }

    fn poll_all(&mut self) {
        for side in 0..2 {
            while self.poll(side, 64) > 0 {}
        }
    }

    /// Ends everything, and checks what is left to check.
    fn end(mut self) {
        self.pairs.iter().flat_map(|pair| pair.connected.qps).for_each(|qp| ndk!(qp, NdkFlush()));
        // As far as the model can tell; what comes later is polled when all QPs are closed.
        for _ in 0..PATIENCE {
            self.poll_all();
            if self.pairs.iter().flat_map(|pair| pair.initiators.iter().chain(&pair.receives)).all(Queue::is_quiet) {
                break;
            }
            self.bench.step();
        }
        for index in 0..self.pairs.len() {
            self.close_connector(index, 0);
            self.close_connector(index, 1);
        }
        // Antecedents first: their closes are over when those of the QPs are.
        let bench = &*self.bench;
        let start = |close, object: *mut std::ffi::c_void| bench.close_object(close, object);
        let mut slots = Vec::new();
        // SAFETY: all of these objects are live.
        unsafe {
            for side in 0..2 {
                slots.push(start((*(*self.pds[side]).Dispatch).NdkClosePd, self.pds[side].cast()));
                for mr in [self.sources[side].mr, self.sinks[side].mr] {
                    slots.push(start((*(*mr).Dispatch).NdkCloseMr, mr.cast()));
                }
            }
            for pair in &self.pairs {
                for qp in pair.connected.qps {
                    slots.push(start((*(*qp).Dispatch).NdkCloseQp, qp.cast()));
                }
                let listener = pair.connected.listener;
                slots.push(start((*(*listener).Dispatch).NdkCloseListener, listener.cast()));
            }
        }
        slots.extend(self.pairs.iter().flat_map(|pair| pair.closing).flatten());
        slots.iter().for_each(|slot| bench.closed(slot));
        self.poll_all();
        let bench = &*self.bench;
        close!(bench, self.cqs[0].0 => NdkCloseCq, self.cqs[1].0 => NdkCloseCq);
        // Nothing may be called any more.
        (0..5).for_each(|_| bench.step());
        self.check(&slots);
    }

    fn check(&self, closes: &[&'static Slot]) {
        closes.iter().for_each(|slot| assert_eq!(slot.calls(), [Call::Closed], "a close calls once"));
        for (side, (_, notified)) in self.cqs.iter().enumerate() {
            assert!(notified.count() <= self.arms[side], "{} notifications of {} arms", notified.count(), self.arms[side]);
        }
        let mut expected = [(); 2].map(|()| vec![vec![0xEE; PLACE]; PLACES]);
        for pair in &self.pairs {
            pair.disconnects.iter().for_each(|slot| assert_eq!(slot.count(), 1, "a disconnect calls once"));
            pair.connected.events.iter().for_each(|slot| assert!(slot.count() <= 1, "one disconnect event at most"));
            pair.receives.iter().for_each(Queue::check);
            for (side, queue) in pair.initiators.iter().enumerate() {
                queue.check();
                for posted in &queue.posted {
                    let place = posted.request as usize;
                    let found = self.sinks[1 - side].read(place * PLACE, posted.bytes.len());
                    // A silent request without an entry has succeeded. One that failed may have come through, as a whole or in part.
                    let is_done = posted.status.is_none_or(|status| status == SUCCESS);
                    let is_right = |(found, new): (&u8, &u8)| found == new || (!is_done && *found == 0xEE);
                    assert!(found.iter().zip(&posted.bytes).all(is_right), "bytes of request {place}");
                    expected[1 - side][place][..found.len()].copy_from_slice(&found);
                }
            }
        }
        for (sink, expected) in self.sinks.iter().zip(&expected) {
            assert!(sink.read(0, sink.len()) == expected.concat(), "bytes where nobody has written");
        }
    }
}
