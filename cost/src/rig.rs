//! Two connected queue pairs on quiet cards: one behind the driver's interface, one behind that in C.

use std::ffi::c_void;
use std::net::{IpAddr, Ipv4Addr};
use std::ptr::null_mut;
use std::sync::Arc;

use verbena_host::cm::Exchange;
use verbena_host::{Adapter, AdapterConfig, Completion, Cq, Pd, Qp, QpAddress, QpOptions, QpPeer, ReceiveQueue, SendQueue, Sge};
use verbena_ndk::abi::*;
use verbena_ndk::open::{CardHandle, VerbenaOpenNdkAdapter, VerbenaProcessEvents};

use crate::card::QuietCard;

/// Requests of a send queue, and entries of its CQ: the deepest that the card has.
pub const DEPTH: u32 = 512;

/// Both queue pairs.
pub struct Rig {
    /// The one behind the driver's interface.
    pub rust: RustSide,
    /// The one behind the interface in C.
    pub c: CSide,
}

/// A queue pair, as a Rust program has it.
pub struct RustSide {
    card: Arc<QuietCard>,
    /// Its CQ.
    pub cq: Arc<Cq>,
    /// Its send queue.
    pub sq: SendQueue,
    /// Its receive queue.
    pub rq: ReceiveQueue,
    /// Where completions go.
    pub batch: [Completion; 16],
    /// Requests that were posted and not polled.
    pub posted: u16,
}

/// A queue pair, as a program in C has it.
pub struct CSide {
    card: Arc<QuietCard>,
    /// The queue pair.
    pub qp: *mut NDK_QP,
    /// Its CQ.
    pub cq: *mut NDK_CQ,
    /// Where completions go.
    pub batch: [NDK_RESULT; 16],
    /// Requests that were posted and not polled.
    pub posted: u16,
}

impl Rig {
    /// Opens cards and connects everything. From then on, the cards do nothing by themselves.
    #[expect(clippy::new_without_default, reason = "no rig is as good as another: it has cards behind it")]
    pub fn new() -> Self {
        Self { rust: RustSide::new(), c: CSide::new() }
    }
}

fn config(number: u8) -> AdapterConfig {
    AdapterConfig::new([2, 0, 0, 0, 0, number], Some(Ipv4Addr::new(192, 0, 2, number)), None)
}

impl RustSide {
    fn new() -> Self {
        let card = QuietCard::new();
        let adapter = Adapter::open(card.clone(), config(1)).expect("an adapter");
        let pd = Pd::create(&adapter).expect("a PD");
        let cq = Cq::create_blocking(&adapter, DEPTH, None).expect("a CQ");
        let options = QpOptions { inline_bytes: 32, receive_depth: DEPTH, receive_sges: 2, ..QpOptions::sender(DEPTH) };
        let qp = Qp::create_blocking(&pd, &cq, &cq, options).expect("a QP");
        let peer = QpAddress { qpn: 9, psn: 1, ip: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), mac: [2, 0, 0, 0, 0, 2] };
        qp.connect_blocking(&QpPeer::new(peer, 1024)).expect("a connection");
        card.be_quiet();
        let (sq, rq) = (qp.take_send_queue().expect("its send queue"), qp.take_receive_queue().expect("its receive queue"));
        Self { card, cq, sq, rq, batch: [Completion::default(); 16], posted: 0 }
    }

    /// Has everything finished that was posted, with a completion each.
    pub fn finish(&mut self) {
        self.sq.ring_doorbell();
        self.card.finish(self.posted);
        self.posted = 0;
    }

    /// Takes all completions, so that all slots are free, and has the send queue know it.
    pub fn drain(&mut self) {
        self.reap_all();
        self.finish();
        self.reap_all();
        assert_eq!(self.sq.free_slots(), DEPTH);
    }

    /// Takes all completions.
    pub fn reap_all(&mut self) {
        while self.cq.poll(&mut self.batch) > 0 {}
    }

    /// Posts as many writes as fit.
    pub fn fill(&mut self) {
        self.drain();
        for context in 0..u64::from(DEPTH) {
            self.sq.write(context, &[Sge::default()], 0, 0, verbena_host::WriteFlags::DEFER).expect("room for it");
            self.posted += 1;
        }
    }
}

/// Calls an entry of an object's table.
macro_rules! ndk {
    ($object:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let object = $object;
        // SAFETY: the rig's objects live as long as the process, and its arguments are valid.
        #[allow(unused_unsafe, reason = "an argument may need it as well")]
        unsafe { ((*(*object).Dispatch).$function.expect("an entry of the table"))(object.cast(), $($argument),*) }
    }};
}
pub(crate) use ndk;

/// Puts what was created where the context says.
unsafe extern "C" fn on_created(context: PVOID, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
    assert_eq!(status, 0, "a creation");
    // SAFETY: the context is a place for it, which [`CSide::created`] keeps.
    unsafe { *context.cast::<*mut c_void>() = object.cast() };
}

/// Puts the connector that came in where the context says.
unsafe extern "C" fn on_requested(context: PVOID, connector: *mut NDK_CONNECTOR) {
    // SAFETY: the context is a place for it.
    unsafe { *context.cast::<*mut c_void>() = connector.cast() };
}

unsafe extern "C" fn on_done(_: PVOID, status: NTSTATUS) {
    assert_eq!(status, 0, "a request");
}

unsafe extern "C" fn on_notified(_: PVOID, _: NTSTATUS) {}

unsafe extern "C" fn on_disconnected(_: PVOID) {}

/// Returns a place for an object, kept for good: callbacks may write it.
fn place<T>() -> &'static mut *mut T {
    Box::leak(Box::new(null_mut()))
}

fn address<T>(place: &mut *mut T) -> PVOID {
    std::ptr::from_mut(place).cast()
}

/// Returns an IPv4 address as the system lays it out.
fn sockaddr(number: u8, port: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&2u16.to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&[192, 0, 2, number]);
    bytes
}

impl CSide {
    fn new() -> Self {
        let exchange = Exchange::new();
        let cards = [QuietCard::new(), QuietCard::new()];
        let adapters = [0, 1].map(|side| {
            let device = CardHandle::new(cards[side].clone(), config(side as u8 + 1), Arc::clone(&exchange)).into_raw();
            let parameters = NDIS_OPEN_NDK_ADAPTER_PARAMETERS { Version: NDK_VERSION { Major: 2, Minor: 1 }, SwitchId: 0, VPortId: 0 };
            let mut adapter = null_mut();
            // SAFETY: the handle is live, the other pointers are to locals.
            assert_eq!(unsafe { VerbenaOpenNdkAdapter(device, &parameters, &mut adapter) }, 0, "an adapter");
            adapter
        });
        let settle = || {
            for _ in 0..8 {
                // SAFETY: both adapters are open.
                adapters.iter().for_each(|adapter| _ = unsafe { VerbenaProcessEvents(*adapter) });
            }
        };
        let queues = adapters.map(|adapter| {
            let (pd, cq, qp) = (place::<NDK_PD>(), place::<NDK_CQ>(), place::<NDK_QP>());
            ndk!(adapter, NdkCreatePd(Some(on_created), address(pd), null_mut()));
            ndk!(adapter, NdkCreateCq(DEPTH, Some(on_notified), null_mut(), null_mut(), Some(on_created), address(cq), null_mut()));
            settle();
            ndk!(*pd, NdkCreateQp(*cq, *cq, null_mut(), DEPTH, DEPTH, 2, 2, 32, Some(on_created), address(qp), null_mut()));
            settle();
            (*qp, *cq)
        });
        let [(qp, cq), (peer, _)] = queues;
        // The passive side listens, the active one asks, and both say yes.
        let (at, from) = (sockaddr(2, 5_000), sockaddr(1, 0));
        let (passive, request) = (place::<NDK_CONNECTOR>(), place::<c_void>());
        let (mut listener, mut active) = (null_mut(), null_mut());
        ndk!(adapters[1], NdkCreateListener(Some(on_requested), address(passive), Some(on_created), address(request), &mut listener));
        ndk!(listener, NdkListen(at.as_ptr().cast(), 16, Some(on_done), null_mut()));
        ndk!(adapters[0], NdkCreateConnector(Some(on_created), address(request), &mut active));
        let (at, from) = (at.as_ptr().cast(), from.as_ptr().cast());
        ndk!(active, NdkConnect(qp, from, 16, at, 16, 0, 0, null_mut(), 0, Some(on_done), null_mut()));
        settle();
        ndk!(*passive, NdkAccept(peer, 0, 0, null_mut(), 0, Some(on_disconnected), null_mut(), Some(on_done), null_mut()));
        settle();
        ndk!(active, NdkCompleteConnect(Some(on_disconnected), null_mut(), Some(on_done), null_mut()));
        settle();
        let [card, _] = cards;
        card.be_quiet();
        // SAFETY: zeroes are a result of nothing.
        Self { card, qp, cq, batch: unsafe { std::mem::zeroed() }, posted: 0 }
    }

    /// Has everything finished that was posted, with a completion each.
    pub fn finish(&mut self) {
        self.card.finish(self.posted);
        self.posted = 0;
    }

    /// Takes all completions, so that all slots are free, and has the send queue know it.
    pub fn drain(&mut self) {
        self.reap_all();
        self.fill();
        self.finish();
        self.reap_all();
        // Behind a full queue the next request looks for free slots, and the following ones need not.
        self.write(NDK_OP_FLAG_DEFER);
        self.posted += 1;
        self.finish();
        self.reap_all();
    }

    fn reap_all(&mut self) {
        while ndk!(self.cq, NdkGetCqResults(self.batch.as_mut_ptr(), 16)) > 0 {}
    }

    /// Posts as many writes as fit.
    pub fn fill(&mut self) {
        while self.write(NDK_OP_FLAG_DEFER) == 0 {
            self.posted += 1;
        }
    }

    fn write(&mut self, flags: ULONG) -> NTSTATUS {
        ndk!(self.qp, NdkWrite(null_mut(), std::ptr::null(), 0, 0, 0, flags))
    }
}
