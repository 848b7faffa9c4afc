//! Two verilated cards behind the C interface: a consumer of NDKPI as small as it can be.
//!
//! Everything here goes through the tables of functions, as a consumer in C does. A callback is recorded in the [`Slot`] that was its context;
//! callbacks run in [`Bench::step`], which lets both cards run a little, and in whatever waits.

#![allow(
    clippy::missing_safety_doc,
    clippy::not_unsafe_ptr_arg_deref,
    clippy::macro_metavars_in_unsafe,
    reason = "a test vouches for its pointers, as a consumer does"
)]

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::net::{Ipv4Addr, SocketAddr};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

use verbena_host::cm::Exchange;
use verbena_host::ndk::NtStatus;
use verbena_host::{Adapter, AdapterConfig, Device};
use verbena_ndk::abi::*;
use verbena_ndk::open::{
    host_adapter, CardHandle, VerbenaCloseDevice, VerbenaCloseNdkAdapter, VerbenaOpenNdkAdapter, VerbenaProcessEvents,
    VerbenaQueryStatistics,
};
use verbena_sim::{LinkConfig, SimDevice, Threads, World, WorldConfig};

use crate::repeat::{self, Repeat};

/// Clocks of one step, unless a bench has others.
const STEP: u64 = 100;
/// Clocks after which a wait is given up.
const PATIENCE: u64 = 400_000;
/// Where regions begin in their first page: not at its start, like most buffers, and always at the same place, because the number of beats
/// depends on it.
const REGION_OFFSET: usize = 0x110;
/// What memory holds that nobody has written.
pub const CANARY: u8 = 0xEE;
/// Port on which the passive side of [`Bench::connect`] listens, and the next ones.
const FIRST_PORT: u16 = 5_000;

/// Returns a status as the interface has it.
pub const fn nt(status: NtStatus) -> NTSTATUS {
    status.0 as NTSTATUS
}

/// `STATUS_SUCCESS`.
pub const SUCCESS: NTSTATUS = nt(NtStatus::SUCCESS);
/// `STATUS_PENDING`.
pub const PENDING: NTSTATUS = nt(NtStatus::PENDING);
/// `STATUS_CANCELLED`.
pub const CANCELLED: NTSTATUS = nt(NtStatus::CANCELLED);
/// `STATUS_INVALID_PARAMETER`.
pub const INVALID_PARAMETER: NTSTATUS = nt(NtStatus::INVALID_PARAMETER);
/// `STATUS_CONNECTION_INVALID`.
pub const CONNECTION_INVALID: NTSTATUS = nt(NtStatus::CONNECTION_INVALID);

/// A call of the provider's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A creation is over.
    Created(NTSTATUS, usize),
    /// A request is over.
    Done(NTSTATUS),
    /// An object is closed.
    Closed,
    /// A CQ has something, or is dead.
    Notified(NTSTATUS),
    /// Somebody wants a connection.
    Requested(usize),
    /// The connection is over.
    Disconnected,
}

/// Context of callbacks: records them.
#[derive(Debug, Default)]
pub struct Slot(Mutex<Vec<Call>>);

impl Slot {
    /// Returns what was called so far.
    pub fn calls(&self) -> Vec<Call> {
        self.0.lock().unwrap().clone()
    }

    /// Returns how often it was called.
    pub fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Returns the pointer for C.
    pub fn context(&self) -> PVOID {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns the slot behind a context.
    ///
    /// # Safety
    /// The context is that of a slot that lives: benches keep theirs.
    unsafe fn at<'a>(context: PVOID) -> &'a Self {
        // SAFETY: the caller's.
        unsafe { &*context.cast::<Self>() }
    }

    fn add(&self, call: Call) {
        self.0.lock().unwrap().push(call);
    }
}

/// Records a close.
pub unsafe extern "C" fn on_closed(context: PVOID) {
    // SAFETY: contexts of this module are slots.
    unsafe { Slot::at(context) }.add(Call::Closed);
}

/// Records the end of a request.
pub unsafe extern "C" fn on_done(context: PVOID, status: NTSTATUS) {
    // SAFETY: as above.
    unsafe { Slot::at(context) }.add(Call::Done(status));
}

/// Records the end of a creation.
pub unsafe extern "C" fn on_created(context: PVOID, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: as above.
    unsafe { Slot::at(context) }.add(Call::Created(status, object as usize));
}

/// Records a notification.
pub unsafe extern "C" fn on_notified(context: PVOID, status: NTSTATUS) {
    // SAFETY: as above.
    unsafe { Slot::at(context) }.add(Call::Notified(status));
}

/// Records a connector that came in.
pub unsafe extern "C" fn on_requested(context: PVOID, connector: *mut NDK_CONNECTOR) {
    // SAFETY: as above.
    unsafe { Slot::at(context) }.add(Call::Requested(connector as usize));
}

/// Records a disconnect event.
pub unsafe extern "C" fn on_disconnected(context: PVOID) {
    // SAFETY: as above.
    unsafe { Slot::at(context) }.add(Call::Disconnected);
}

type Hook = RefCell<Box<dyn FnMut(usize)>>;

/// Returns a context that runs `run` with the callback's argument. A call inside a call panics.
pub fn hook(run: impl FnMut(usize) + 'static) -> PVOID {
    let hook: Box<Hook> = Box::new(RefCell::new(Box::new(run)));
    Box::into_raw(hook).cast()
}

unsafe fn run_hook(context: PVOID, argument: usize) {
    // SAFETY: contexts of these callbacks are hooks, which live for good.
    let hook = unsafe { &*context.cast::<Hook>() };
    (*hook.borrow_mut())(argument);
}

/// Runs a hook with a status: of a notification, or of a request's end.
pub unsafe extern "C" fn call_status(context: PVOID, status: NTSTATUS) {
    // SAFETY: as there.
    unsafe { run_hook(context, status as u32 as usize) };
}

/// Runs a hook with nothing: for closes and disconnect events.
pub unsafe extern "C" fn call_plain(context: PVOID) {
    // SAFETY: as there.
    unsafe { run_hook(context, 0) };
}

/// Runs a hook with a connector that came in.
pub unsafe extern "C" fn call_requested(context: PVOID, connector: *mut NDK_CONNECTOR) {
    // SAFETY: as there.
    unsafe { run_hook(context, connector as usize) };
}

/// Calls an entry of an object's table: `ndk!(qp, NdkFlush())`.
///
/// The consumer's side of the contract is the test's: objects are live, lists are valid.
#[macro_export]
macro_rules! ndk {
    ($object:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let object = $object;
        // SAFETY: a test's objects are live when it calls them, and its arguments are valid.
        #[allow(unused_unsafe)]
        unsafe { ((*(*object).Dispatch).$function.expect("an entry of the table"))(object.cast(), $($argument),*) }
    }};
}

/// One side: a card and its adapter.
#[derive(Debug)]
pub struct Side {
    /// The card.
    pub card: Arc<SimDevice>,
    /// Its handle.
    pub device: NDIS_HANDLE,
    /// The opened adapter.
    pub adapter: *mut NDK_ADAPTER,
    /// Its address.
    pub ip: Ipv4Addr,
    /// Mappings of the card that the adapter itself has.
    pub own_mappings: usize,
}

impl Side {
    /// Returns the driver's adapter.
    pub fn host(&self) -> &Adapter {
        // SAFETY: a bench closes its adapters last, and is gone then.
        unsafe { host_adapter(self.adapter) }.expect("an adapter")
    }
}

/// A region and its memory.
#[derive(Debug)]
pub struct Region {
    /// The object.
    pub mr: *mut NDK_MR,
    /// Its token, for both ends.
    pub token: u32,
    /// Never freed: the card may reach it until the region is closed.
    bytes: &'static [Cell<u8>],
    /// The whole pages that it lies in.
    pages: &'static [Cell<u8>],
}

impl Region {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Tells whether there are none, which can't be.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the address of byte `offset`.
    pub fn va(&self, offset: usize) -> u64 {
        self.bytes.as_ptr() as u64 + offset as u64
    }

    /// Returns an entry for `len` bytes at `offset`.
    pub fn sge(&self, offset: usize, len: u32) -> NDK_SGE {
        NDK_SGE { Address: self.va(offset), Length: len, MemoryRegionToken: self.token }
    }

    /// Returns a copy of `len` bytes at `offset`.
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        self.bytes[offset..offset + len].iter().map(Cell::get).collect()
    }

    /// Puts bytes at `offset`.
    pub fn fill(&self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].iter().zip(bytes).for_each(|(place, byte)| place.set(*byte));
    }
}

/// Numbers of a QP.
#[derive(Clone, Copy, Debug)]
pub struct QpSize {
    /// `QPContext`.
    pub context: u64,
    /// `ReceiveQueueDepth`.
    pub receives: u32,
    /// `InitiatorQueueDepth`.
    pub initiators: u32,
    /// `MaxReceiveRequestSge`.
    pub receive_sges: u32,
    /// `MaxInitiatorRequestSge`.
    pub initiator_sges: u32,
    /// `InlineDataSize`.
    pub inline_bytes: u32,
}

impl Default for QpSize {
    /// Returns queues of 16 requests of two SGEs and 32 inline bytes.
    fn default() -> Self {
        Self { context: 0xC0FFEE, receives: 16, initiators: 16, receive_sges: 2, initiator_sges: 2, inline_bytes: 32 }
    }
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `Status`.
    pub status: NTSTATUS,
    /// `QPContext`.
    pub qp: u64,
    /// `RequestContext`.
    pub request: u64,
    /// `Type`.
    pub operation: u32,
    /// `ProviderErrorCode`.
    pub code: u32,
}

/// Two connected QPs with their connectors; 0 is the active side.
#[derive(Debug)]
pub struct Connected {
    /// The QPs.
    pub qps: [*mut NDK_QP; 2],
    /// Their connectors.
    pub connectors: [*mut NDK_CONNECTOR; 2],
    /// Where the disconnect events go.
    pub events: [&'static Slot; 2],
    /// The listener of the passive side.
    pub listener: *mut NDK_LISTENER,
}

/// Two cards behind the interface.
#[derive(Debug)]
pub struct Bench {
    /// The simulation.
    pub world: Arc<World>,
    /// Both sides.
    pub sides: [Side; 2],
    /// Clocks of one step.
    pub step_clocks: u64,
    next_port: u16,
    /// Pages of regions that are closed.
    spare: RefCell<Vec<&'static [Cell<u8>]>>,
    _repeat: Option<Repeat>,
}

impl Bench {
    /// Opens both adapters with version 2.1.
    pub fn new() -> Self {
        Self::with_link(LinkConfig::default())
    }

    /// As [`Bench::new`], over a link of the caller's choice.
    pub fn with_link(link: LinkConfig) -> Self {
        Self::with_retries(link, None)
    }

    /// As [`Bench::with_link`], with this timeout exponent and retry count instead of the driver's.
    pub fn with_retries(link: LinkConfig, retries: Option<(u8, u8)>) -> Self {
        let seed = repeat::seed();
        let bench = Self::with_world(WorldConfig { seed, link, ..WorldConfig::default() }, retries);
        Self { _repeat: Some(Repeat { seed, capture: None }), ..bench }
    }

    /// As [`Bench::with_retries`], in surroundings of the caller's choice, whose seed the caller tells if the test fails.
    pub fn with_world(config: WorldConfig, retries: Option<(u8, u8)>) -> Self {
        let psn_seed = Some(config.seed);
        let config = WorldConfig { threads: Threads::One, trace: repeat::trace(), ..config };
        let world = World::new(&config).expect("the files of the simulation");
        let exchange = Exchange::new();
        let sides = [0u8, 1].map(|number| {
            let card = world.device(number.into());
            let ip = Ipv4Addr::new(192, 0, 2, number + 1);
            let mut config = AdapterConfig { psn_seed, ..AdapterConfig::new([2, 0, 0, 0, 0, number + 1], Some(ip), None) };
            if let Some((ack_timeout, retry_count)) = retries {
                config = AdapterConfig { ack_timeout, retry_count, ..config };
            }
            let device = CardHandle::new(card.clone(), config, Arc::clone(&exchange)).into_raw();
            let adapter = open(device, 2, 1).expect("the adapter is opened");
            Side { own_mappings: card.mappings(), card, device, adapter, ip }
        });
        Self { world, sides, step_clocks: STEP, next_port: FIRST_PORT, spare: RefCell::default(), _repeat: None }
    }

    /// Closes the adapter of a side and opens it anew, on another view of its card or for another version. Nothing is left of it, and it finds no peer.
    pub fn reopen(&mut self, side: usize, device: Arc<dyn Device>, (major, minor): (u16, u16)) {
        let (number, side) = (side as u8 + 1, &mut self.sides[side]);
        // SAFETY: nothing that was created from the adapter is left.
        unsafe {
            VerbenaCloseNdkAdapter(side.device, side.adapter);
            VerbenaCloseDevice(side.device);
        }
        let config = AdapterConfig::new([2, 0, 0, 0, 0, number], Some(side.ip), None);
        side.device = CardHandle::new(device, config, Exchange::new()).into_raw();
        side.adapter = open(side.device, major, minor).expect("the adapter is opened again");
    }

    /// Returns the limits of a side.
    #[track_caller]
    pub fn info(&self, side: usize) -> NDK_ADAPTER_INFO {
        let mut info = std::mem::MaybeUninit::zeroed();
        let mut size = size_of::<NDK_ADAPTER_INFO>() as u32;
        assert_eq!(ndk!(self.sides[side].adapter, NdkQueryAdapterInfo(info.as_mut_ptr(), &mut size)), SUCCESS);
        // SAFETY: the provider has filled it.
        unsafe { info.assume_init() }
    }

    /// Returns a slot that lives as long as the process: callbacks may come at any time.
    pub fn slot(&self) -> &'static Slot {
        Box::leak(Box::default())
    }

    /// Runs the callbacks that are due on both sides.
    pub fn process(&self) {
        for side in &self.sides {
            // SAFETY: the adapter is open.
            unsafe { VerbenaProcessEvents(side.adapter) };
        }
    }

    /// Lets the clocks run a little, and runs callbacks.
    pub fn step(&self) {
        self.pass(self.step_clocks);
    }

    /// Lets `clocks` clocks run, and then callbacks.
    pub fn pass(&self, clocks: u64) {
        self.world.run(clocks).expect("the cards keep their contracts");
        self.process();
    }

    /// Lets the clocks run until everything that is under way must have ended.
    pub fn settle(&self) {
        (0..60).for_each(|_| self.step());
    }

    /// Steps until `condition` gives something.
    #[track_caller]
    pub fn wait<T>(&self, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
        for _ in 0..PATIENCE / self.step_clocks {
            if let Some(value) = condition() {
                return value;
            }
            self.step();
        }
        panic!("gave up waiting for {what}");
    }

    /// Waits for the one call of a creation and returns the object.
    #[track_caller]
    pub fn created<T>(&self, status: NTSTATUS, slot: &Slot) -> *mut T {
        assert_eq!(status, PENDING, "a command of the card is needed");
        match self.wait("a creation", || slot.calls().first().copied()) {
            Call::Created(SUCCESS, object) => object as *mut T,
            other => panic!("a creation ended with {other:x?}"),
        }
    }

    /// Waits for the one call of a request and returns its status; an inline answer is one as well.
    #[track_caller]
    pub fn done(&self, status: NTSTATUS, slot: &Slot) -> NTSTATUS {
        if status != PENDING {
            return status;
        }
        match self.wait("a request", || slot.calls().first().copied()) {
            Call::Done(status) => status,
            other => panic!("a request ended with {other:x?}"),
        }
    }

    /// Returns the counters of a side's adapter and card.
    #[track_caller]
    pub fn statistics(&self, side: usize) -> NDIS_NDK_PERFORMANCE_COUNTERS {
        let mut counters = NDIS_NDK_PERFORMANCE_COUNTERS::default();
        // SAFETY: the adapter is open, and the counters live.
        assert_eq!(unsafe { VerbenaQueryStatistics(self.sides[side].adapter, &mut counters) }, SUCCESS);
        counters
    }

    /// Creates a CQ and returns it with the slot of its notifications.
    #[track_caller]
    pub fn cq(&self, side: usize, depth: u32) -> (*mut NDK_CQ, &'static Slot) {
        let (notified, slot) = (self.slot(), self.slot());
        let adapter = self.sides[side].adapter;
        let status = ndk!(
            adapter,
            NdkCreateCq(depth, Some(on_notified), notified.context(), null_mut(), Some(on_created), slot.context(), null_mut())
        );
        (self.created(status, slot), notified)
    }

    /// Creates a protection domain.
    #[track_caller]
    pub fn pd(&self, side: usize) -> *mut NDK_PD {
        let slot = self.slot();
        self.created(ndk!(self.sides[side].adapter, NdkCreatePd(Some(on_created), slot.context(), null_mut())), slot)
    }

    /// Asks for a QP; the status is inline.
    pub fn try_qp(&self, pd: *mut NDK_PD, receive_cq: *mut NDK_CQ, initiator_cq: *mut NDK_CQ, size: QpSize, slot: &Slot) -> NTSTATUS {
        // What must not be written when the creation pends.
        let out = null_mut();
        ndk!(
            pd,
            NdkCreateQp(
                receive_cq,
                initiator_cq,
                size.context as PVOID,
                size.receives,
                size.initiators,
                size.receive_sges,
                size.initiator_sges,
                size.inline_bytes,
                Some(on_created),
                slot.context(),
                out
            )
        )
    }

    /// Creates a QP.
    #[track_caller]
    pub fn qp(&self, pd: *mut NDK_PD, receive_cq: *mut NDK_CQ, initiator_cq: *mut NDK_CQ, size: QpSize) -> *mut NDK_QP {
        let slot = self.slot();
        self.created(self.try_qp(pd, receive_cq, initiator_cq, size, slot), slot)
    }

    /// Registers `len` bytes of [`CANARY`] with `NDK_MR_FLAG_*`.
    #[track_caller]
    pub fn region(&self, pd: *mut NDK_PD, len: usize, flags: u32) -> Region {
        let mut mr = null_mut();
        let slot = self.slot();
        assert_eq!(ndk!(pd, NdkCreateMr(0, Some(on_created), slot.context(), &mut mr)), SUCCESS);
        let pages = self.pages((REGION_OFFSET + len).next_multiple_of(PAGE_SIZE));
        let bytes = &pages[REGION_OFFSET..REGION_OFFSET + len];
        let mut mdl = mdl(bytes.as_ptr().cast(), len);
        let status = ndk!(mr, NdkRegisterMr(&mut mdl, len, flags, Some(on_done), slot.context()));
        assert_eq!(self.done(status, slot), SUCCESS);
        Region { mr, token: ndk!(mr, NdkGetRemoteTokenFromMr()), bytes, pages }
    }

    /// Returns `len` bytes of canaries, at the beginning of a page.
    fn pages(&self, len: usize) -> &'static [Cell<u8>] {
        let mut spare = self.spare.borrow_mut();
        if let Some(found) = spare.iter().position(|pages| pages.len() == len) {
            let pages = spare.swap_remove(found);
            pages.iter().for_each(|byte| byte.set(CANARY));
            return pages;
        }
        let memory = Vec::leak(vec![Cell::new(CANARY); len + PAGE_SIZE]);
        let start = memory.as_ptr().align_offset(PAGE_SIZE);
        &memory[start..start + len]
    }

    /// Takes back the memory of a region that is closed, for another, and checks that nothing was written beside the region: the card can reach
    /// whole pages.
    #[track_caller]
    pub fn give_back(&self, region: Region) {
        let (front, rest) = region.pages.split_at(REGION_OFFSET);
        let behind = &rest[region.len()..];
        assert!(front.iter().chain(behind).all(|byte| byte.get() == CANARY), "bytes beside a region");
        self.spare.borrow_mut().push(region.pages);
    }

    /// Connects two new QPs, one of each side: 0 asks, 1 listens.
    #[track_caller]
    pub fn connect(&mut self, qps: [*mut NDK_QP; 2]) -> Connected {
        let port = self.next_port;
        self.next_port += 1;
        let (requests, slots, events) = (self.slot(), [self.slot(), self.slot()], [self.slot(), self.slot()]);
        let mut listener = null_mut();
        let side = &self.sides[1];
        let status = ndk!(
            side.adapter,
            NdkCreateListener(Some(on_requested), requests.context(), Some(on_created), slots[1].context(), &mut listener)
        );
        assert_eq!(status, SUCCESS);
        let (at, at_bytes) = sockaddr((side.ip, port).into());
        assert_eq!(ndk!(listener, NdkListen(at.as_ptr().cast(), at_bytes, Some(on_done), slots[1].context())), SUCCESS);

        let mut active = null_mut();
        assert_eq!(ndk!(self.sides[0].adapter, NdkCreateConnector(Some(on_created), slots[0].context(), &mut active)), SUCCESS);
        let (from, from_bytes) = sockaddr((self.sides[0].ip, 0).into());
        let status = ndk!(
            active,
            NdkConnect(
                qps[0],
                from.as_ptr().cast(),
                from_bytes,
                at.as_ptr().cast(),
                at_bytes,
                0,
                0,
                null_mut(),
                0,
                Some(on_done),
                slots[0].context()
            )
        );
        assert_eq!(status, PENDING);
        let Call::Requested(passive) = self.wait("a connect event", || requests.calls().first().copied()) else { unreachable!() };
        let passive = passive as *mut NDK_CONNECTOR;
        let status = ndk!(
            passive,
            NdkAccept(qps[1], 0, 0, null_mut(), 0, Some(on_disconnected), events[1].context(), Some(on_done), slots[1].context())
        );
        assert_eq!(status, PENDING);
        assert_eq!(self.done(PENDING, slots[0]), SUCCESS, "the request for a connection");
        let completed = self.slot();
        let status = ndk!(active, NdkCompleteConnect(Some(on_disconnected), events[0].context(), Some(on_done), completed.context()));
        assert_eq!(self.done(status, completed), SUCCESS, "its completion");
        assert_eq!(self.done(PENDING, slots[1]), SUCCESS, "its acceptance");
        Connected { qps, connectors: [active, passive], events, listener }
    }

    /// Posts a write.
    pub fn write(&self, qp: *mut NDK_QP, request: u64, sges: &[NDK_SGE], remote: u64, token: u32, flags: u32) -> NTSTATUS {
        write(qp, request, sges, remote, token, flags)
    }

    /// Takes up to `most` completions of a CQ.
    pub fn take(&self, cq: *mut NDK_CQ, most: usize) -> Vec<Entry> {
        take(cq, most)
    }

    /// Waits until a CQ has given `count` completions.
    #[track_caller]
    pub fn reap(&self, cq: *mut NDK_CQ, count: usize) -> Vec<Entry> {
        let mut entries = Vec::new();
        self.wait(&format!("{count} completions"), || {
            entries.extend(self.take(cq, count - entries.len()));
            (entries.len() == count).then_some(())
        });
        entries
    }

    /// Starts the close of an object and returns its slot. `$close` is the entry of its table.
    #[track_caller]
    pub fn close_object(&self, close: NDK_FN_CLOSE_OBJECT, object: *mut c_void) -> &'static Slot {
        let slot = self.slot();
        // SAFETY: the object is live and not used any more.
        let status = unsafe { close.expect("an entry of the table")(object.cast(), Some(on_closed), slot.context()) };
        match status {
            PENDING => {}
            SUCCESS => slot.add(Call::Closed),
            other => panic!("a close can't fail, and this one gave {other:#x}"),
        }
        slot
    }

    /// Waits until an object is closed.
    #[track_caller]
    pub fn closed(&self, slot: &Slot) {
        self.wait("a close", || (slot.count() > 0).then_some(()));
        assert_eq!(slot.calls(), [Call::Closed], "one call");
    }

    /// Closes both adapters, and checks that nothing is left that the cards could reach.
    pub fn close(self) {
        for side in &self.sides {
            // SAFETY: everything that was created from it is closed, or being closed.
            unsafe { VerbenaCloseNdkAdapter(side.device, side.adapter) };
            assert_eq!(side.card.mappings(), 0, "memory that the card can still reach");
            // SAFETY: its adapter is closed.
            unsafe { VerbenaCloseDevice(side.device) };
        }
    }
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

/// Closes objects, whatever they are, and waits for all of them: `close!(bench, qp: NdkCloseQp, cq: NdkCloseCq)`.
#[macro_export]
macro_rules! close {
    ($bench:expr, $($object:expr => $close:ident),* $(,)?) => {{
        // All closes are started before one is waited for, so any order will do.
        let slots = [$({
            let object = $object;
            // SAFETY: the object is live.
            let close = unsafe { (*(*object).Dispatch).$close };
            $bench.close_object(close, object.cast())
        }),*];
        slots.into_iter().for_each(|slot| $bench.closed(slot));
    }};
}

/// As [`Bench::write`], for any thread.
pub fn write(qp: *mut NDK_QP, request: u64, sges: &[NDK_SGE], remote: u64, token: u32, flags: u32) -> NTSTATUS {
    ndk!(qp, NdkWrite(request as PVOID, sges.as_ptr(), sges.len() as u32, remote, token, flags))
}

/// As [`Bench::take`], for any thread.
pub fn take(cq: *mut NDK_CQ, most: usize) -> Vec<Entry> {
    let mut results: Vec<NDK_RESULT_EX> = Vec::with_capacity(most);
    let count = ndk!(cq, NdkGetCqResultsEx(results.as_mut_ptr(), most as u32)) as usize;
    assert!(count <= most, "{count} completions, {most} were asked for");
    // SAFETY: the provider has written so many.
    unsafe { results.set_len(count) };
    let entry = |result: NDK_RESULT_EX| Entry {
        status: result.Status,
        qp: result.QPContext as u64,
        request: result.RequestContext as u64,
        operation: result.Type as u32,
        code: result.ProviderErrorCode,
    };
    results.into_iter().map(entry).collect()
}

/// Opens an adapter with a version of the caller's choice.
pub fn open(device: NDIS_HANDLE, major: u16, minor: u16) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
    let parameters = NDIS_OPEN_NDK_ADAPTER_PARAMETERS { Version: NDK_VERSION { Major: major, Minor: minor }, SwitchId: 0, VPortId: 0 };
    let mut adapter = null_mut();
    // SAFETY: the handle is live, the other pointers are to locals.
    match unsafe { VerbenaOpenNdkAdapter(device, &parameters, &mut adapter) } {
        SUCCESS => Ok(adapter),
        status => Err(status),
    }
}

/// Returns a descriptor of `len` bytes at `start`.
pub fn mdl(start: *const u8, len: usize) -> MDL {
    let offset = start as usize % PAGE_SIZE;
    MDL {
        Next: null_mut(),
        Size: size_of::<MDL>() as i16,
        MdlFlags: 0,
        Process: null_mut(),
        MappedSystemVa: start.cast_mut().cast(),
        StartVa: start.wrapping_sub(offset).cast_mut().cast(),
        ByteCount: len as u32,
        ByteOffset: offset as u32,
    }
}

/// Returns an address as the system lays it out, and its length.
pub fn sockaddr(address: SocketAddr) -> (Vec<u8>, u32) {
    let mut bytes = vec![0; 28];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            bytes[..2].copy_from_slice(&2u16.to_ne_bytes());
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            bytes.truncate(16);
        }
        SocketAddr::V6(v6) => {
            bytes[..2].copy_from_slice(&10u16.to_ne_bytes());
            bytes[8..24].copy_from_slice(&v6.ip().octets());
        }
    }
    let len = bytes.len() as u32;
    (bytes, len)
}
