//! Two cards, a link, and the driver's objects on both ends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use verbena_host::{
    access, Adapter, AdapterConfig, Completion, Cq, CqeStatus, Device, Error, Pd, Qp, QpOptions, QpPeer, SendQueue, Sge, WriteFlags,
};
use verbena_sim::{LinkConfig, PcieConfig, SimDevice, Threads, World, WorldConfig};

use crate::capture::{self, Packet};
use crate::region::Region;
use crate::repeat::{self, Repeat};
use crate::spy::Spy;

/// All rights that a region for writes needs.
pub const WRITABLE: u8 = access::LOCAL_WRITE | access::REMOTE_WRITE;

/// Clocks without a completion after which one is given up: far more than the longest message takes.
const PATIENCE: u64 = 200_000;
/// Clocks between two looks at a queue.
const STEP: u64 = 100;
/// Clocks after which nothing more can be under way: several round trips.
const SETTLED: u64 = 4_000;

/// What a pair is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// Everything that happens by chance comes from it.
    pub seed: u64,
    /// Path MTU, bytes.
    pub mtu: u32,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// 802.1Q tag control information.
    pub vlan: Option<u16>,
    /// Registered bytes on each end.
    pub region_bytes: usize,
    /// Entries of each end's CQ.
    pub cq_depth: u32,
    /// Of a hundred clocks, so many in which a ready or valid pauses.
    pub stalls: u8,
    /// Keep all frames, for [`Outcome::packets`].
    pub capture: bool,
    /// PCIe of both hosts.
    pub pcie: PcieConfig,
    /// The link.
    pub link: LinkConfig,
    /// Let the test reach the rings of the driver, see [`End::spy`].
    pub spy: bool,
}

impl Default for Options {
    /// Returns 4 KiB MTU, untagged IPv4, 1 MiB on each end, CQs of 1024, nothing that stalls, and no capture.
    fn default() -> Self {
        Self {
            seed: repeat::seed(),
            mtu: 4096,
            ipv6: false,
            vlan: None,
            region_bytes: 1 << 20,
            cq_depth: 1024,
            stalls: 0,
            capture: false,
            pcie: PcieConfig::default(),
            link: LinkConfig::default(),
            spy: false,
        }
    }
}

/// What two connected QPs are made of.
#[derive(Clone, Debug)]
pub struct Link {
    /// Depth of both send queues.
    pub depth: u32,
    /// SGEs of a request.
    pub sges: u32,
    /// Bytes of inline data of a request.
    pub inline_bytes: u32,
    /// First PSN of either end.
    pub psn: [u32; 2],
    /// What the peer may do, on either end.
    pub access: [u8; 2],
    /// Domain of the QP on either end, if not the end's own.
    pub pd: [Option<Arc<Pd>>; 2],
    /// CQ of the QP on either end, if not the end's own.
    pub cq: [Option<Arc<Cq>>; 2],
    /// Local ACK timeout exponent of both ends, if not [`QpPeer::new`]'s.
    pub timeout: Option<u8>,
    /// Retry count of both ends, if not [`QpPeer::new`]'s.
    pub retry_count: Option<u8>,
}

impl Default for Link {
    /// Returns queues of 64 requests of two SGEs, the right to write on both ends.
    fn default() -> Self {
        Self {
            depth: 64,
            sges: 2,
            inline_bytes: 0,
            psn: [0x12_3456, 0xAB_CDEF],
            access: [access::REMOTE_WRITE; 2],
            pd: [None, None],
            cq: [None, None],
            timeout: None,
            retry_count: None,
        }
    }
}

/// One end: a card with its driver.
#[derive(Debug)]
pub struct End {
    /// The card.
    pub device: Arc<SimDevice>,
    /// What is between card and driver, if [`Options::spy`] asks for it.
    pub spy: Option<Arc<Spy>>,
    /// The adapter.
    pub adapter: Arc<Adapter>,
    /// The domain of whatever names no other.
    pub pd: Arc<Pd>,
    /// The CQ of whatever names no other.
    pub cq: Arc<Cq>,
    /// Memory to write from and to: random data, but canaries in the lower half of end 1.
    pub region: Region,
}

/// Two connected QPs.
#[derive(Debug)]
pub struct Connection {
    /// The QP of either end.
    pub qps: [Arc<Qp>; 2],
    /// The send queue of either end.
    pub queues: [SendQueue; 2],
}

impl Connection {
    /// Closes both QPs and waits until they have left their cards.
    pub fn close(self) {
        let Self { qps, queues } = self;
        drop(queues);
        for qp in qps {
            qp.close_blocking().expect("the QP is closed");
        }
    }
}

/// A write from the region of one end into that of the other.
#[derive(Clone, Debug)]
pub struct Write {
    /// Offset and bytes of each piece in the source.
    pub pieces: Vec<(usize, u32)>,
    /// Offset in the destination.
    pub to: usize,
}

impl Write {
    /// Returns a write of one piece.
    pub fn new(from: usize, to: usize, len: u32) -> Self {
        Self { pieces: vec![(from, len)], to }
    }
}

/// What is left of a pair that was closed.
#[derive(Debug)]
pub struct Outcome {
    /// Clocks that the run took.
    pub clocks: u64,
    /// The capture, if there is one.
    pub capture: Vec<u8>,
    /// Its frames, decoded.
    pub packets: Vec<Packet>,
    /// Where the capture lies as long as this value lives.
    pub path: Option<PathBuf>,
    _folder: Option<TempDir>,
}

/// Two cards and what the driver made of them.
#[derive(Debug)]
pub struct Pair {
    /// The simulation.
    pub world: Arc<World>,
    /// Both ends.
    pub ends: [End; 2],
    /// What it was made of.
    pub options: Options,
    repeat: Repeat,
}

impl Pair {
    /// Opens two cards.
    pub fn new(options: Options) -> Self {
        let mut repeat = Repeat { seed: options.seed, capture: None };
        let folder = options.capture.then(|| tempfile::tempdir().expect("a folder for the capture"));
        let config = WorldConfig {
            seed: options.seed,
            pcie: options.pcie,
            link: options.link,
            // Tests run beside each other already.
            threads: Threads::One,
            pcap: folder.as_ref().map(|folder| folder.path().join("wire.pcap")),
            trace: repeat::trace(),
        };
        let config = if options.stalls == 0 { config } else { config.with_stalls(options.stalls) };
        let world = World::new(&config).expect("the files of the simulation");
        repeat.capture = folder.map(|folder| (Arc::clone(&world), folder));
        let ends = [0, 1].map(|number| End::open(&world, number, &options));
        for (end, seed) in ends.iter().zip([0, 1]) {
            assert_eq!(end.adapter.info().abi_version, verbena_abi::ABI_VERSION, "card {seed}");
        }
        Self { world, ends, options, repeat }
    }

    /// Creates and connects two QPs.
    pub fn connect(&self, link: &Link) -> Connection {
        let qps = [0, 1].map(|number| {
            let end = &self.ends[number];
            let options = QpOptions {
                send_sges: link.sges,
                inline_bytes: link.inline_bytes,
                first_psn: Some(link.psn[number]),
                ..QpOptions::sender(link.depth)
            };
            let pd = link.pd[number].as_ref().unwrap_or(&end.pd);
            let cq = link.cq[number].as_ref().unwrap_or(&end.cq);
            Qp::create_blocking(pd, cq, cq, options).expect("the QP is created")
        });
        self.join(qps, link)
    }

    /// Connects two QPs that exist.
    pub fn join(&self, qps: [Arc<Qp>; 2], link: &Link) -> Connection {
        for number in [0, 1] {
            let mut peer = QpPeer::new(qps[1 - number].address(), self.options.mtu);
            peer.vlan_tci = self.options.vlan;
            peer.access = link.access[number];
            peer.timeout = link.timeout.unwrap_or(peer.timeout);
            peer.retry_count = link.retry_count.unwrap_or(peer.retry_count);
            qps[number].connect_blocking(&peer).expect("the QP is connected");
        }
        let queues = [0, 1].map(|number| qps[number].take_send_queue().expect("a new QP has its send queue"));
        Connection { qps, queues }
    }

    /// Returns the SGEs of a write from end `from`.
    pub fn sges(&self, from: usize, write: &Write) -> Vec<Sge> {
        write.pieces.iter().map(|(offset, len)| self.ends[from].region.sge(*offset, *len)).collect()
    }

    /// Posts a write from end `from`, and expects its bytes at the other end.
    pub fn post(&mut self, connection: &mut Connection, from: usize, context: u64, write: &Write, flags: WriteFlags) -> Result<(), Error> {
        let sges = self.sges(from, write);
        let target = &self.ends[1 - from].region;
        connection.queues[from].write(context, &sges, target.va(write.to), target.key(), flags)?;
        let bytes: Vec<u8> =
            write.pieces.iter().flat_map(|(offset, len)| self.ends[from].region.expected(*offset, *len as usize).to_vec()).collect();
        self.ends[1 - from].region.expect(write.to, &bytes);
        Ok(())
    }

    /// Posts an inline write of these bytes from end `from`, and expects them at `to` of the other end.
    pub fn post_inline(
        &mut self,
        connection: &mut Connection,
        from: usize,
        context: u64,
        bytes: &[u8],
        to: usize,
        flags: WriteFlags,
    ) -> Result<(), Error> {
        let target = &self.ends[1 - from].region;
        connection.queues[from].write_inline(context, &[bytes], target.va(to), target.key(), flags)?;
        self.ends[1 - from].region.expect(to, bytes);
        Ok(())
    }

    /// Lets the clocks run.
    #[track_caller]
    pub fn run(&self, clocks: u64) {
        self.world.run(clocks).unwrap_or_else(|fault| panic!("the simulation is stopped: {fault}"));
    }

    /// Waits for `count` completions of the CQ of end `number`, and gives up when none comes for long.
    #[track_caller]
    pub fn reap(&self, number: usize, count: usize, what: &str) -> Vec<Completion> {
        self.reap_from(&self.ends[number].cq, count, what)
    }

    /// Waits for `count` completions of `cq`, without running callbacks.
    #[track_caller]
    pub fn reap_from(&self, cq: &Cq, count: usize, what: &str) -> Vec<Completion> {
        let mut found = Vec::with_capacity(count);
        let mut room = [Completion::default(); 64];
        let mut last_news = self.world.clock();
        while found.len() < count {
            let wanted = room.len().min(count - found.len());
            let news = cq.poll(&mut room[..wanted]);
            found.extend_from_slice(&room[..news]);
            let now = self.world.clock();
            if news != 0 {
                last_news = now;
                continue;
            }
            if now - last_news > PATIENCE {
                panic!("{what}: no completion for {PATIENCE} clocks, {} of {count} are there; {}", found.len(), self.describe());
            }
            self.run(STEP);
        }
        found
    }

    /// Waits until `done` gives something, processing the events of both ends.
    #[track_caller]
    pub fn wait_for<T>(&self, what: &str, mut done: impl FnMut() -> Option<T>) -> T {
        let start = self.world.clock();
        loop {
            self.process_events();
            if let Some(value) = done() {
                return value;
            }
            if self.world.clock() - start > PATIENCE {
                panic!("{what}: still waiting after {PATIENCE} clocks; {}", self.describe());
            }
            self.run(STEP);
        }
    }

    /// Runs the callbacks of both ends.
    pub fn process_events(&self) {
        for end in &self.ends {
            end.adapter.process_events();
        }
    }

    /// Waits until nothing is under way, and panics if there is a completion that nobody waited for, or a byte that is not as it should be.
    #[track_caller]
    pub fn settle(&self, what: &str) {
        self.run(SETTLED);
        self.process_events();
        for (number, end) in self.ends.iter().enumerate() {
            let mut room = [Completion::default(); 4];
            let extra = end.cq.poll(&mut room);
            assert_eq!(extra, 0, "{what}: completions of card {number} that nobody waited for: {:?}", &room[..extra]);
            assert!(!end.cq.is_dead(), "{what}: the CQ of card {number} overran");
            end.region.check(&format!("{what}: card {number}"));
        }
    }

    /// Returns all counters of both cards that are not 0.
    pub fn describe(&self) -> String {
        let list = |end: &End| {
            let counters = end.adapter.read_counters();
            let counts: Vec<String> =
                counters.iter().filter(|(_, count)| *count != 0).map(|(name, count)| format!("{name} {count}")).collect();
            counts.join(", ")
        };
        format!("A counts {}; B counts {}", list(&self.ends[0]), list(&self.ends[1]))
    }

    /// Closes everything, and panics if anything is left on a card or was out of place.
    #[track_caller]
    pub fn close(self, connections: impl IntoIterator<Item = Connection>) -> Outcome {
        for connection in connections {
            connection.close();
        }
        let Self { world, ends, mut repeat, .. } = self;
        for (number, End { device, spy, adapter, pd, cq, region }) in ends.into_iter().enumerate() {
            region.check(&format!("at the end, card {number}"));
            region.close();
            cq.close_blocking().expect("the CQ is closed");
            drop((pd, spy));
            let anomalies = adapter.anomalies();
            let found = (anomalies.unknown_events(), anomalies.stray_completions(), anomalies.lost_objects());
            assert_eq!(found, (0, 0, 0), "card {number}: unknown events, stray completions, lost objects");
            adapter.close_blocking().expect("the adapter is closed");
            assert_eq!(device.mappings(), 0, "card {number} can still reach memory");
        }
        world.finish_capture().expect("the capture is written");
        assert_eq!(world.fault(), None);
        let clocks = world.clock();
        let folder = repeat.capture.take().map(|(_, folder)| folder);
        drop(world);
        let path = folder.as_ref().map(|folder| folder.path().join("wire.pcap"));
        let capture = path.as_ref().map(|path| std::fs::read(path).expect("the capture is there")).unwrap_or_default();
        let packets = path.as_ref().map(|path| capture::read(path)).unwrap_or_default();
        drop(repeat);
        Outcome { clocks, capture, packets, path, _folder: folder }
    }
}

impl End {
    fn open(world: &Arc<World>, number: usize, options: &Options) -> Self {
        let last = number as u8 + 1;
        let (ipv4, ipv6) = match address(number, options.ipv6) {
            IpAddr::V4(ip) => (Some(ip), None),
            IpAddr::V6(ip) => (None, Some(ip)),
        };
        let device = world.device(number);
        let spy = options.spy.then(|| Arc::new(Spy::new(Arc::clone(&device))));
        let wrapped: Arc<dyn Device> = spy.as_ref().map_or_else(|| Arc::clone(&device) as Arc<dyn Device>, |spy| Arc::clone(spy) as _);
        let adapter =
            Adapter::open(Arc::clone(&wrapped), AdapterConfig::new([2, 0, 0, 0, 0, last], ipv4, ipv6)).expect("the adapter is opened");
        let pd = Pd::create(&adapter).expect("a domain");
        let cq = Cq::create_blocking(&adapter, options.cq_depth, None).expect("the CQ is created");
        // Addresses of our own choice, so that the frames are the same in each run.
        let base_va = 0x7000_0000_0000 + ((number as u64) << 40);
        let mut region = Region::new(wrapped, &pd, options.region_bytes, base_va, WRITABLE);
        region.randomise(options.seed.wrapping_add(number as u64));
        if number == 1 {
            region.clear(0, options.region_bytes / 2);
        }
        Self { device, spy, adapter, pd, cq, region }
    }
}

/// Returns the address of end `number`.
pub fn address(number: usize, ipv6: bool) -> IpAddr {
    if ipv6 {
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number as u16 + 1))
    } else {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, number as u8 + 1))
    }
}

/// Panics unless the completions are successes of requests with these contexts, in this order.
#[track_caller]
pub fn check_done(completions: &[Completion], contexts: impl IntoIterator<Item = u64>) {
    let found: Vec<_> = completions.iter().map(|completion| (completion.context, completion.status.raw())).collect();
    let expected: Vec<_> = contexts.into_iter().map(|context| (context, CqeStatus::Success as u8)).collect();
    assert_eq!(found, expected, "context and status of the completions");
}
