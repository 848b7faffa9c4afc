//! One opened card: its limits, its addresses, its counters, and the numbers of its objects.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use verbena_abi::arith::Ring;
use verbena_abi::limits;
use verbena_abi::queue::{CommandCode, CommandOp, Eqe};
use verbena_abi::regs::{self, AbiVersion, Counter, EqConfig, EqConsumer, Id, MacHi, MacLo, StageControl, Status, WideCounter};
use verbena_abi::stages::Stage;
use verbena_abi::ABI_VERSION;

use crate::command::{Callback, CloseCallback, CloseStatus, CommandWindow, Submitted};
use crate::connect::{check_retries, ACK_TIMEOUT, RETRY_COUNT};
use crate::cq::Cq;
use crate::device::{Bar, Device};
use crate::dma::DmaBuffer;
use crate::error::Error;
use crate::events::EventQueue;
use crate::lock;
use crate::numbers::Numbers;
use crate::psn::FirstPsns;
use crate::qp::{Qp, QpFault};
use crate::rq::Signal;

/// Blocking calls read the status register after each so many waits, in case that an event was lost.
const POLL_COMMAND_EVERY: u32 = 16;

/// Minor number of the first interface that has counters of stages.
const STAGES_SINCE_MINOR: u16 = 1;

/// Minor number of the first interface whose card moderates events.
const MODERATION_SINCE_MINOR: u16 = 2;

/// Minor number of the first interface that counts traffic in 64 bits.
const TRAFFIC_SINCE_MINOR: u16 = 3;

/// What the operator chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterConfig {
    /// Station address, byte 0 first on the wire. Not zero, not a group address.
    pub mac: [u8; 6],
    /// IPv4 address, if the adapter has one.
    pub ipv4: Option<Ipv4Addr>,
    /// IPv6 address, if the adapter has one.
    pub ipv6: Option<Ipv6Addr>,
    /// Interrupt vector of the event queue.
    pub event_vector: u8,
    /// How often a blocking call lets [`Device::wait`] run before it gives up.
    pub max_waits: u32,
    /// Local ACK timeout of the connections that [`crate::cm`] makes, as [`crate::QpPeer::timeout`].
    pub ack_timeout: u8,
    /// Their retry count, as [`crate::QpPeer::retry_count`].
    pub retry_count: u8,
    /// Seed of the first PSNs of QPs that are not told one, which follow from it and from `mac`; `None`: chance. With a number a simulation can
    /// repeat a run.
    pub psn_seed: Option<u64>,
}

impl AdapterConfig {
    /// Returns a configuration with vector 0, 20,000 waits, a timeout of 67 ms, seven retries, and PSNs by chance.
    pub const fn new(mac: [u8; 6], ipv4: Option<Ipv4Addr>, ipv6: Option<Ipv6Addr>) -> Self {
        Self { mac, ipv4, ipv6, event_vector: 0, max_waits: 20_000, ack_timeout: ACK_TIMEOUT, retry_count: RETRY_COUNT, psn_seed: None }
    }
}

/// Limits of a card, as its capability registers report them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterInfo {
    /// Version of the card's interface: major, minor.
    pub abi_version: (u16, u16),
    /// Queue pairs that can exist at a time (QPNs below [`limits::FIRST_QPN`] are not usable and not counted).
    pub max_qps: u32,
    /// Completion queues.
    pub max_cqs: u32,
    /// Memory regions (index 0 is not usable and not counted).
    pub max_mrs: u32,
    /// Protection domains that can exist at a time (label 0 stays unused).
    pub max_pds: u32,
    /// Deepest send queue, requests.
    pub max_send_depth: u32,
    /// Deepest receive queue, requests; 0: the card has none.
    pub max_receive_depth: u32,
    /// Deepest completion queue, entries.
    pub max_cq_depth: u32,
    /// SGEs of an initiator request.
    pub max_send_sges: u32,
    /// SGEs of a receive request.
    pub max_receive_sges: u32,
    /// SGEs of a read request.
    pub max_read_sges: u32,
    /// Inline data of a request, bytes.
    pub max_inline_bytes: u32,
    /// Largest message, bytes.
    pub max_message_bytes: u32,
    /// Largest path MTU, bytes.
    pub max_mtu_bytes: u32,
    /// Interrupt vectors that the card raises and the backend reports.
    pub vectors: u32,
    /// READs and atomics that a QP answers at once.
    pub max_inbound_reads: u32,
    /// READs and atomics that a QP has outstanding.
    pub max_outbound_reads: u32,
    /// Clock of the core, kHz.
    pub clock_khz: u32,
}

/// Values of all counters of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters([u32; Counter::COUNT]);

impl Counters {
    /// Returns one value. Counters start at reset and wrap.
    pub fn get(&self, counter: Counter) -> u32 {
        self.0[counter as usize]
    }

    /// Returns name and value of each counter.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u32)> + '_ {
        Counter::ALL.iter().zip(self.0).map(|((_, name, _), value)| (*name, value))
    }
}

/// The traffic of RDMA of a card: frames that are let through and frames sent, acknowledgements included, and their bytes as the MAC has them, without
/// preamble and FCS. What `NDIS_NDK_PERFORMANCE_COUNTERS` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of incoming frames.
    pub in_octets: u64,
    /// Bytes of outgoing frames.
    pub out_octets: u64,
    /// Incoming frames.
    pub in_frames: u64,
    /// Outgoing frames.
    pub out_frames: u64,
}

/// What one stage of a card counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageCount {
    /// Which.
    pub stage: Stage,
    /// Its name.
    pub name: &'static str,
    /// Clocks in which it moved something.
    pub beats: u32,
    /// Clocks in which it offered something that was not taken.
    pub stalls: u32,
}

/// What all stages of a card counted, and in how many clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageCounts {
    clocks: u32,
    beats: [u32; Stage::COUNT],
    stalls: [u32; Stage::COUNT],
}

impl StageCounts {
    /// Returns the clocks in which stages were counted. What is neither a beat nor a stall of a stage was idle.
    pub fn clocks(&self) -> u32 {
        self.clocks
    }

    /// Returns what one stage counted.
    pub fn get(&self, stage: Stage) -> StageCount {
        let (_, name, _) = Stage::ALL[stage as usize];
        StageCount { stage, name, beats: self.beats[stage as usize], stalls: self.stalls[stage as usize] }
    }

    /// Returns what each stage counted, in the order in which a write walks through the card.
    pub fn iter(&self) -> impl Iterator<Item = StageCount> + '_ {
        Stage::ALL.iter().map(|(stage, _, _)| self.get(*stage))
    }

    /// Returns what was counted after `before`. Right as long as no count went around more than once: 2^32 clocks are 17 s.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let difference = |after: &[u32; Stage::COUNT], before: &[u32; Stage::COUNT]| {
            std::array::from_fn(|stage| after[stage].wrapping_sub(before[stage]))
        };
        Self {
            clocks: self.clocks.wrapping_sub(before.clocks),
            beats: difference(&self.beats, &before.beats),
            stalls: difference(&self.stalls, &before.stalls),
        }
    }
}

/// What the driver saw of the card that should not be, and CQs that were too small. On a sane card with a sane consumer there is nothing but events of
/// objects that were closed meanwhile.
#[derive(Debug, Default)]
pub struct Anomalies {
    unknown_events: AtomicU64,
    stray_completions: AtomicU64,
    lost_objects: AtomicU64,
    dead_cqs: AtomicU64,
}

impl Anomalies {
    /// Returns the number of events of no known kind or object. One for an object that was closed
    /// while its event was under way counts as well.
    pub fn unknown_events(&self) -> u64 {
        self.unknown_events.load(Ordering::Relaxed)
    }

    /// Returns the number of completion entries that belong to no outstanding request.
    pub fn stray_completions(&self) -> u64 {
        self.stray_completions.load(Ordering::Relaxed)
    }

    /// Returns the number of objects that the card refused to give up, and of the CQs of such QPs. As long as the adapter is open their numbers are kept,
    /// and the label of their domain. Their memory is kept for good, unless it is the caller's: then it leaves the card's reach, and its bus
    /// addresses are kept. Such a card is to be reset before an adapter is opened on it again.
    pub fn lost_objects(&self) -> u64 {
        self.lost_objects.load(Ordering::Relaxed)
    }

    /// Returns the number of completion queues that overran.
    pub fn dead_cqs(&self) -> u64 {
        self.dead_cqs.load(Ordering::Relaxed)
    }

    pub(crate) fn count_dead_cq(&self) {
        self.dead_cqs.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_unknown_event(&self) {
        self.unknown_events.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_stray_completion(&self) {
        self.stray_completions.fetch_add(1, Ordering::Relaxed);
    }
}

/// How many objects of each kind an adapter has: those that exist, that are being made, or that the card has not given up yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Queue pairs.
    pub qps: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Memory regions.
    pub mrs: u32,
    /// Protection domains.
    pub pds: u32,
}

/// Numbers of all kinds, and the changing part of each region's last key.
pub(crate) struct NumberSpace {
    pub(crate) qps: Numbers,
    pub(crate) cqs: Numbers,
    pub(crate) mrs: Numbers,
    pub(crate) pds: Numbers,
    pub(crate) key_tags: Vec<u8>,
}

/// Work for [`Adapter::process_events`].
pub(crate) type Deferred = Box<dyn FnOnce() + Send>;

/// Selects one kind in a [`NumberSpace`].
pub(crate) type Kind = fn(&mut NumberSpace) -> &mut Numbers;

/// One opened card.
pub struct Adapter {
    device: Arc<dyn Device>,
    config: AdapterConfig,
    info: AdapterInfo,
    pub(crate) window: Mutex<CommandWindow>,
    pub(crate) events: EventQueue,
    pub(crate) numbers: Mutex<NumberSpace>,
    pub(crate) first_psns: FirstPsns,
    pub(crate) anomalies: Anomalies,
    /// What is to run inside [`Adapter::process_events`] though no event of the card says so.
    deferred: Mutex<VecDeque<Deferred>>,
    /// Some CQ may have to call back there, for the same reason.
    pub(crate) wake_cqs: Signal,
    /// The card is gone.
    is_lost: AtomicBool,
    qps: Mutex<Vec<Weak<Qp>>>,
    cqs: Mutex<Vec<Weak<Cq>>>,
}

impl std::fmt::Debug for Adapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adapter").field("config", &self.config).field("info", &self.info).finish_non_exhaustive()
    }
}

impl Adapter {
    /// Opens a card: checks identity and version, waits until it is ready, reads its limits, gives
    /// it its addresses and an event queue.
    ///
    /// Blocks up to [`AdapterConfig::max_waits`] waits. Fails with [`Error::NotVerbena`],
    /// [`Error::AbiVersion`], [`Error::DeviceRemoved`], [`Error::NotReady`], [`Error::BadCapability`],
    /// [`Error::BadValue`] for a station address that is none, [`Error::AboveLimit`] for the vector, or [`Error::OutOfMemory`].
    pub fn open(device: Arc<dyn Device>, config: AdapterConfig) -> Result<Arc<Self>, Error> {
        if config.mac == [0; 6] || config.mac[0] & 1 != 0 {
            let value = config.mac.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
            return Err(Error::BadValue { what: "station address", value, allowed: "individual addresses other than zero" });
        }
        check_retries(config.ack_timeout, config.retry_count)?;
        let abi_version = identify(device.bar())?;
        wait_until_ready(&*device, config.max_waits)?;
        let (mut info, log_eq_limit) = crate::capabilities::read(device.bar(), abi_version)?;
        info.vectors = info.vectors.min(device.vectors());
        if u32::from(config.event_vector) >= info.vectors {
            let limit = u64::from(info.vectors.saturating_sub(1));
            return Err(Error::AboveLimit { what: "event_vector", value: u64::from(config.event_vector), limit });
        }

        // Room for an arm and an overrun of each CQ, two faults of each QP, and one command. Arms that are satisfied thousands of
        // times while nobody processes events can fill it; the card then keeps one arm of each CQ and 64 faults of requesters and of
        // responders each, and counts what it loses.
        let wanted = Ring::with_slots(2 * (info.max_cqs + info.max_qps + limits::FIRST_QPN) + 1);
        let ring = Ring::new(wanted.log_depth().min(log_eq_limit));
        let memory = Arc::clone(&device).alloc(ring.depth() as usize * size_of::<Eqe>(), 4096)?;

        let bar = device.bar();
        write_addresses(bar, &config);
        bar.write32(regs::EqBaseLo::OFFSET, memory.iova() as u32);
        bar.write32(regs::EqBaseHi::OFFSET, (memory.iova() >> 32) as u32);
        bar.write32(EqConsumer::OFFSET, 0);
        let eq_config = EqConfig::reset()
            .with(EqConfig::LOG_DEPTH, u32::from(ring.log_depth()))
            .with(EqConfig::VECTOR, u32::from(config.event_vector))
            .with(EqConfig::ENABLE, 1);
        // The card may write entries from here on. The zeroes of the ring, in which no phase is right, come before (order of `Bar`).
        bar.write32(EqConfig::OFFSET, eq_config.raw());

        let numbers = NumberSpace {
            qps: Numbers::new("QPs", limits::FIRST_QPN, info.max_qps + limits::FIRST_QPN),
            cqs: Numbers::new("CQs", 0, info.max_cqs),
            mrs: Numbers::new("memory regions", 1, info.max_mrs + 1),
            pds: Numbers::new("protection domains", 1, info.max_pds + 1),
            key_tags: vec![0; info.max_mrs as usize + 1],
        };
        let qps = Mutex::new((0..info.max_qps + limits::FIRST_QPN).map(|_| Weak::new()).collect());
        let cqs = Mutex::new((0..info.max_cqs).map(|_| Weak::new()).collect());
        let first_psns = FirstPsns::new(config.psn_seed, config.mac);
        Ok(Arc::new(Self {
            device,
            config,
            info,
            window: Mutex::default(),
            events: EventQueue::new(ring, memory),
            numbers: Mutex::new(numbers),
            first_psns,
            anomalies: Anomalies::default(),
            deferred: Mutex::default(),
            wake_cqs: Signal::default(),
            is_lost: AtomicBool::new(false),
            qps,
            cqs,
        }))
    }

    /// Returns the limits of the card.
    pub fn info(&self) -> &AdapterInfo {
        &self.info
    }

    /// Returns what it was opened with.
    pub fn config(&self) -> &AdapterConfig {
        &self.config
    }

    /// Returns the card's backend.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Reads all counters: one register read each, so not one consistent snapshot.
    pub fn read_counters(&self) -> Counters {
        let mut values = [0; Counter::COUNT];
        for ((counter, _, _), value) in Counter::ALL.iter().zip(&mut values) {
            *value = self.read_counter(*counter);
        }
        Counters(values)
    }

    /// Reads one counter.
    pub fn read_counter(&self, counter: Counter) -> u32 {
        self.bar().read32(counter.offset())
    }

    /// Reads the traffic of RDMA since the card's reset: four counters one behind the other, so not one consistent snapshot.
    ///
    /// Fails with [`Error::AbiVersion`] if the card's interface is older than 1.3, and with [`Error::DeviceRemoved`].
    pub fn read_traffic(&self) -> Result<Traffic, Error> {
        self.check_minor(TRAFFIC_SINCE_MINOR)?;
        if self.is_lost.load(Ordering::Acquire) {
            return Err(Error::DeviceRemoved { register: "CmdStatus" });
        }
        Ok(Traffic {
            in_octets: self.read_wide_counter(WideCounter::RdmaInOctets)?,
            out_octets: self.read_wide_counter(WideCounter::RdmaOutOctets)?,
            in_frames: self.read_wide_counter(WideCounter::RdmaInFrames)?,
            out_frames: self.read_wide_counter(WideCounter::RdmaOutFrames)?,
        })
    }

    fn read_wide_counter(&self, counter: WideCounter) -> Result<u64, Error> {
        let (low_word, high_word) = (counter.offset(), counter.offset() + 4);
        let mut high = self.bar().read32(high_word);
        loop {
            // What a card that is gone reads as; no count of this age is so high.
            if high == u32::MAX {
                return Err(Error::DeviceRemoved { register: "WideCounters" });
            }
            // Between two equal high words the low one belongs to them.
            let low = self.bar().read32(low_word);
            let before = std::mem::replace(&mut high, self.bar().read32(high_word));
            if high == before {
                return Ok(u64::from(high) << 32 | u64::from(low));
            }
        }
    }

    /// Stops the counting of stages, or lets it go on. It goes on after a reset.
    ///
    /// One register write, so two of them frame a stretch of time without a read inside.
    /// Fails with [`Error::AbiVersion`] if the card's interface is older than 1.1 and has no stages.
    pub fn hold_stages(&self, hold: bool) -> Result<(), Error> {
        self.check_for_stages()?;
        self.bar().write32(StageControl::OFFSET, StageControl::reset().with(StageControl::HOLD, hold.into()).raw());
        Ok(())
    }

    /// Reads what all stages have counted since the reset: one register read each, so a consistent snapshot only after [`Adapter::hold_stages`].
    ///
    /// Fails as [`Adapter::hold_stages`] does.
    pub fn read_stages(&self) -> Result<StageCounts, Error> {
        self.check_for_stages()?;
        // First, as its answer is long enough under way for the sums to take in what was counted before a hold.
        let clocks = self.bar().read32(regs::Clocks::OFFSET);
        let mut counts = StageCounts { clocks, beats: [0; Stage::COUNT], stalls: [0; Stage::COUNT] };
        for (stage, _, _) in Stage::ALL {
            counts.beats[*stage as usize] = self.bar().read32(stage.beats_offset());
            counts.stalls[*stage as usize] = self.bar().read32(stage.stalls_offset());
        }
        Ok(counts)
    }

    /// Tells whether the card can hold events of a CQ back, see [`Cq::moderate`].
    pub fn can_moderate(&self) -> bool {
        self.info.abi_version.1 >= MODERATION_SINCE_MINOR
    }

    pub(crate) fn check_for_moderation(&self) -> Result<(), Error> {
        self.check_minor(MODERATION_SINCE_MINOR)
    }

    fn check_for_stages(&self) -> Result<(), Error> {
        self.check_minor(STAGES_SINCE_MINOR)
    }

    fn check_minor(&self, needed: u16) -> Result<(), Error> {
        let (card_major, card_minor) = self.info.abi_version;
        if card_minor < needed {
            let (driver_major, driver_minor) = ABI_VERSION;
            return Err(Error::AbiVersion { card_major, card_minor, driver_major, driver_minor });
        }
        Ok(())
    }

    /// Returns how many objects there are. One counts from the call that creates it until the card has given it up, which is
    /// before its close is called back; see [`Anomalies::lost_objects`] for those that it does not give up.
    pub fn objects(&self) -> ObjectCounts {
        let numbers = lock(&self.numbers);
        ObjectCounts { qps: numbers.qps.in_use(), cqs: numbers.cqs.in_use(), mrs: numbers.mrs.in_use(), pds: numbers.pds.in_use() }
    }

    /// Returns what the driver saw of the card that should not be.
    pub fn anomalies(&self) -> &Anomalies {
        &self.anomalies
    }

    /// Runs an asynchronous call and waits for its callback, letting the card and the callbacks run meanwhile.
    ///
    /// `what` names in the error what was waited for. Fails with the call's own error or, after
    /// [`AdapterConfig::max_waits`] waits, with [`Error::Timeout`]; what the call started is then
    /// dropped as soon as it ends. Not for use inside a callback: it would wait for itself.
    pub fn block_on<T: Send + 'static>(
        self: &Arc<Self>,
        what: &str,
        start: impl FnOnce(Callback<T>) -> Result<Submitted, Error>,
    ) -> Result<T, Error> {
        let slot = Arc::new(Mutex::new(None));
        let answer = Arc::clone(&slot);
        let Submitted::Pending = start(Box::new(move |outcome| *lock(&answer) = Some(outcome)))?;
        self.wait_for(what, || lock(&slot).take())?
    }

    /// Closes something and waits for its callback.
    pub(crate) fn block_on_close(self: &Arc<Self>, what: &str, close: impl FnOnce(CloseCallback) -> CloseStatus) -> Result<(), Error> {
        let is_closed = Arc::new(AtomicBool::new(false));
        let answer = Arc::clone(&is_closed);
        match close(Box::new(move || answer.store(true, Ordering::Release))) {
            CloseStatus::Closed => Ok(()),
            CloseStatus::Pending => self.wait_for(what, || is_closed.load(Ordering::Acquire).then_some(())),
        }
    }

    /// Waits until `done` gives something, with the bound and the errors of [`Adapter::block_on`].
    pub fn wait_for<T>(self: &Arc<Self>, what: &str, mut done: impl FnMut() -> Option<T>) -> Result<T, Error> {
        for round in 0..=self.config.max_waits {
            self.process_events();
            if let Some(value) = done() {
                return Ok(value);
            }
            if round % POLL_COMMAND_EVERY == POLL_COMMAND_EVERY - 1 && self.poll_command() {
                continue;
            }
            self.wait();
        }
        let state = lock(&self.window).describe();
        Err(Error::Timeout { what: what.to_owned(), rounds: self.config.max_waits, state })
    }

    /// Lets the card go on until something may have happened, as [`Device::wait`] does; events are to be processed behind it.
    pub fn wait(&self) {
        self.device.wait();
        // What is known now need not end the next wait.
        self.device.take_interrupts();
    }

    /// Waits until every object of the adapter has left the card, then stops the event queue.
    ///
    /// Handles that the caller or others still hold make this fail with [`Error::Timeout`], which says how many there are.
    pub fn close_blocking(self: Arc<Self>) -> Result<(), Error> {
        let adapter = &self;
        let closed = adapter.wait_for("the objects of the adapter to be closed", || {
            (lock(&adapter.window).is_idle() && !adapter.has_deferred() && Arc::strong_count(adapter) == 1).then_some(())
        });
        match closed {
            Err(Error::Timeout { what, rounds, state }) => {
                let holders = Arc::strong_count(adapter) - 1;
                Err(Error::Timeout { what, rounds, state: format!("{holders} holders of the adapter remain; {state}") })
            }
            other => other,
        }
    }

    /// Lets `work` run inside the next [`Adapter::process_events`], where callbacks belong. Never runs it on the caller's stack.
    pub fn defer(&self, work: impl FnOnce() + Send + 'static) {
        lock(&self.deferred).push_back(Box::new(work));
    }

    /// Tells whether something is deferred.
    pub(crate) fn has_deferred(&self) -> bool {
        !lock(&self.deferred).is_empty()
    }

    /// Runs what was deferred up to now; what that defers in turn waits for the next call. Returns how much it was.
    pub(crate) fn run_deferred(&self) -> usize {
        let work = std::mem::take(&mut *lock(&self.deferred));
        let count = work.len();
        for run in work {
            run();
        }
        count
    }

    /// The card is gone: nothing is posted any more, and what is outstanding completes as flushed.
    pub(crate) fn lose_queues(&self) {
        let qps: Vec<_> = lock(&self.qps).iter().filter_map(Weak::upgrade).collect();
        qps.iter().for_each(|qp| qp.enter_error());
        let cqs: Vec<_> = lock(&self.cqs).iter().filter_map(Weak::upgrade).collect();
        cqs.iter().for_each(|cq| cq.lose());
        self.is_lost.store(true, Ordering::Release);
    }

    /// The card is gone: all QPs fail.
    pub(crate) fn fail_qps(&self) {
        let qps: Vec<_> = lock(&self.qps).iter().filter_map(Weak::upgrade).collect();
        for qp in qps {
            Qp::failed(&qp, QpFault::DeviceRemoved);
        }
    }

    /// Has CQs call back whose arms the driver has satisfied. Returns how many did.
    pub(crate) fn run_wakes(&self) -> usize {
        // On a card that is gone each time: nothing tells of a request that was posted while it went.
        if !self.wake_cqs.lower() && !self.is_lost.load(Ordering::Acquire) {
            return 0;
        }
        let cqs: Vec<_> = lock(&self.cqs).iter().filter_map(Weak::upgrade).collect();
        cqs.iter().filter(|cq| Cq::wake(cq)).count()
    }

    #[inline]
    pub(crate) fn bar(&self) -> &dyn Bar {
        self.device.bar()
    }

    pub(crate) fn take_number(&self, kind: Kind) -> Result<u32, Error> {
        kind(&mut lock(&self.numbers)).take()
    }

    pub(crate) fn give_back_number(&self, kind: Kind, number: u32) {
        kind(&mut lock(&self.numbers)).give_back(number);
    }

    /// Ends an object that the card was told to destroy, or that it did not create: frees number and memory.
    ///
    /// Unless the card says that the object may still exist: then it may still use the memory,
    /// which is therefore kept for good, together with the number. See [`Adapter::retire_region`] for memory that is the consumer's.
    /// Returns whether it is off the card.
    pub(crate) fn retire(&self, kind: Kind, number: u32, memory: impl Sized, error: Option<&Error>) -> bool {
        let is_gone = is_off_the_card(error);
        if is_gone {
            self.give_back_number(kind, number);
        } else {
            self.keep(number, memory, error);
        }
        is_gone
    }

    /// Keeps number and memory of an object for good: the card may still use it.
    pub(crate) fn keep(&self, number: u32, memory: impl Sized, error: Option<&Error>) {
        self.anomalies.lost_objects.fetch_add(1, Ordering::Relaxed);
        match error {
            Some(error) => tracing::error!(number, %error, "the card keeps an object, and so its number"),
            None => tracing::error!(number, "a CQ is kept: the card keeps a QP that completes on it"),
        }
        std::mem::forget(memory);
    }

    /// Ends a region as [`Adapter::retire`] ends any object. Memory that was mapped for it is its owner's again in any case: what the card does not
    /// give up is taken out of its reach, at addresses that are not used again.
    pub(crate) fn retire_region(&self, index: u32, memory: DmaBuffer, error: Option<&Error>) -> bool {
        if is_off_the_card(error) || !memory.never_reuse_addresses() {
            return self.retire(|numbers| &mut numbers.mrs, index, memory, error);
        }
        drop(memory);
        self.retire(|numbers| &mut numbers.mrs, index, (), error)
    }

    pub(crate) fn qp(&self, number: u32) -> Option<Arc<Qp>> {
        lock(&self.qps).get(number as usize)?.upgrade()
    }

    pub(crate) fn cq(&self, number: u32) -> Option<Arc<Cq>> {
        lock(&self.cqs).get(number as usize)?.upgrade()
    }

    pub(crate) fn enter_qp(&self, number: u32, qp: Weak<Qp>) {
        if let Some(entry) = lock(&self.qps).get_mut(number as usize) {
            *entry = qp;
        }
    }

    pub(crate) fn enter_cq(&self, number: u32, cq: Weak<Cq>) {
        if let Some(entry) = lock(&self.cqs).get_mut(number as usize) {
            *entry = cq;
        }
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        // No object and no command is left (each holds the adapter), so the event queue is all that the card could write, and memory that is
        // never freed if it has kept an object.
        let bar = self.device.bar();
        bar.write32(EqConfig::OFFSET, EqConfig::RESET);
        // The read comes back after the write has arrived and what the card had under way is written.
        bar.read32(EqConfig::OFFSET);
    }
}

/// Tells whether an object that was to be created or destroyed is not on the card, by the card's answer.
fn is_off_the_card(error: Option<&Error>) -> bool {
    match error {
        None | Some(Error::DeviceRemoved { .. }) => true,
        Some(Error::CommandRefused { code: CommandCode::NotInUse, .. }) => true,
        // A command that is refused has changed nothing, so what was to be created does not exist.
        Some(Error::CommandRefused { op, .. }) => matches!(op, CommandOp::CreateQp | CommandOp::CreateCq | CommandOp::CreateMr),
        Some(_) => false,
    }
}

fn identify(bar: &dyn Bar) -> Result<(u16, u16), Error> {
    let id = bar.read32(Id::OFFSET);
    if id == u32::MAX {
        return Err(Error::DeviceRemoved { register: "Id" });
    }
    if id != Id::RESET {
        return Err(Error::NotVerbena { found: id, expected: Id::RESET });
    }
    let version = bar.read32(AbiVersion::OFFSET);
    let (card_major, card_minor) = (AbiVersion::MAJOR.get(version) as u16, AbiVersion::MINOR.get(version) as u16);
    if card_major != ABI_VERSION.0 {
        let (driver_major, driver_minor) = ABI_VERSION;
        return Err(Error::AbiVersion { card_major, card_minor, driver_major, driver_minor });
    }
    Ok((card_major, card_minor))
}

fn wait_until_ready(device: &dyn Device, max_waits: u32) -> Result<(), Error> {
    let mut waits = 0;
    loop {
        let status = device.bar().read32(Status::OFFSET);
        if status == u32::MAX {
            return Err(Error::DeviceRemoved { register: "Status" });
        }
        if Status::READY.get(status) == 1 {
            return Ok(());
        }
        if waits == max_waits {
            return Err(Error::NotReady { status, rounds: waits });
        }
        device.wait();
        waits += 1;
    }
}

fn write_addresses(bar: &dyn Bar, config: &AdapterConfig) {
    let mac = config.mac;
    bar.write32(MacLo::OFFSET, u32::from_le_bytes([mac[0], mac[1], mac[2], mac[3]]));
    bar.write32(MacHi::OFFSET, u32::from_le_bytes([mac[4], mac[5], 0, 0]));
    let ipv4 = config.ipv4.map_or([0; 4], |ip| ip.octets());
    bar.write32(regs::Ipv4::OFFSET, u32::from_le_bytes(ipv4));
    let ipv6 = config.ipv6.map_or([0; 16], |ip| ip.octets());
    for (index, word) in (0u32..).zip(ipv6.chunks_exact(4)) {
        bar.write32(regs::Ipv6::OFFSET + 4 * index, u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    }
}
