//! A bus that writes down each call in order, and lets a chosen one fail.
//!
//! It checks by itself what an IOMMU and the kernel check: a mapping lies on whole pages inside the allowed ranges and overlaps no
//! other, and only what was mapped is unmapped. A breach is an error to the caller and stands in [`MockBus::breaches`].

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use verbena_abi::pci::{DEVICE, VENDOR};
use verbena_abi::regs::{Status, BAR0, BAR0_ADDR_BITS};

use crate::lock;
use crate::pci::function::{Counters, Identity, PciFunction, Registers};

/// A call that reached the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// The ids were read.
    Identity,
    /// The function was reset.
    Reset,
    /// Memory space was switched on or off.
    MemorySpace(bool),
    /// Bus mastering was switched on or off.
    BusMaster(bool),
    /// BAR0 was mapped.
    MapBar,
    /// The mapping of BAR0 was dropped.
    UnmapBar,
    /// So many MSI-X vectors were enabled.
    EnableVectors(usize),
    /// MSI-X was disabled.
    DisableVectors,
    /// The event counters were dropped.
    DropCounters,
    /// Memory was mapped.
    Map {
        /// Bus address.
        iova: u64,
        /// Bytes.
        len: usize,
    },
    /// Memory was unmapped.
    Unmap {
        /// Bus address.
        iova: u64,
        /// Bytes.
        len: usize,
    },
    /// A register was read.
    Read(usize),
    /// A register was written.
    Write(usize, u32),
    /// The function was dropped.
    Close,
    /// Something that a test put there.
    Note(&'static str),
}

/// What is at the bus.
#[derive(Clone, Debug)]
pub struct MockConfig {
    /// Ids.
    pub identity: Identity,
    /// Bytes of BAR0.
    pub bar0_len: u64,
    /// MSI-X vectors.
    pub vectors: usize,
    /// Page size of the IOMMU.
    pub page: usize,
    /// Bus addresses that may be mapped.
    pub ranges: Vec<Range<u64>>,
}

impl Default for MockConfig {
    /// A card behind an IOMMU with pages of 4 KiB, whose range for MSI on x86 is reserved.
    fn default() -> Self {
        Self {
            identity: Identity { vendor: VENDOR, device: DEVICE },
            bar0_len: 1 << BAR0_ADDR_BITS,
            vectors: verbena_abi::limits::VECTORS,
            page: 4096,
            ranges: vec![0x1000..0xFEE0_0000, 0xFEF0_0000..1 << 39],
        }
    }
}

/// The bus, as a test sees it.
#[derive(Debug)]
pub struct MockBus {
    config: MockConfig,
    calls: Mutex<Vec<Call>>,
    breaches: Mutex<Vec<String>>,
    mapped: Mutex<BTreeMap<u64, usize>>,
    /// The call that fails, and how many like it do not before.
    failing: Mutex<Option<(Call, usize)>>,
    counters: AtomicU32,
    stolen: AtomicU32,
}

impl MockBus {
    /// Returns a bus and the function at it.
    pub fn new(config: MockConfig) -> (Arc<Self>, MockFunction) {
        let bus = Arc::new(Self {
            config,
            calls: Mutex::default(),
            breaches: Mutex::default(),
            mapped: Mutex::default(),
            failing: Mutex::default(),
            counters: AtomicU32::new(0),
            stolen: AtomicU32::new(0),
        });
        (Arc::clone(&bus), MockFunction(bus))
    }

    /// Lets calls equal to `call` fail from now on, after `good` that do not. Numbers in [`Call::Map`] and [`Call::Unmap`] do not matter.
    pub fn fail(&self, call: Call, good: usize) {
        *lock(&self.failing) = Some((call, good));
    }

    /// Lets nothing fail any more.
    pub fn heal(&self) {
        *lock(&self.failing) = None;
    }

    /// Returns the calls since the last time, in order.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut *lock(&self.calls))
    }

    /// Writes something into the list of calls.
    pub fn note(&self, note: &'static str) {
        lock(&self.calls).push(Call::Note(note));
    }

    /// Returns what an IOMMU or the kernel would not have allowed.
    pub fn breaches(&self) -> Vec<String> {
        lock(&self.breaches).clone()
    }

    /// Returns what is mapped: bus addresses and bytes.
    pub fn mapped(&self) -> BTreeMap<u64, usize> {
        lock(&self.mapped).clone()
    }

    /// Raises a vector.
    pub fn raise(&self, vector: u32) {
        self.counters.fetch_or(1 << vector, Ordering::AcqRel);
    }

    /// Lets another thread take a vector between the look and the reset of its counter, once.
    pub fn steal(&self, vector: u32) {
        self.stolen.fetch_or(1 << vector, Ordering::AcqRel);
    }

    fn record(&self, call: Call) -> io::Result<()> {
        let fails = match &mut *lock(&self.failing) {
            Some((failing, good)) if is_like(failing, &call) => match good.checked_sub(1) {
                Some(left) => {
                    *good = left;
                    false
                }
                None => true,
            },
            _ => false,
        };
        lock(&self.calls).push(call);
        if fails {
            return Err(io::Error::other("the mock was told to fail"));
        }
        Ok(())
    }

    fn breach(&self, what: String) -> io::Error {
        lock(&self.breaches).push(what.clone());
        io::Error::other(what)
    }
}

fn is_like(a: &Call, b: &Call) -> bool {
    match (a, b) {
        (Call::Map { .. }, Call::Map { .. }) | (Call::Unmap { .. }, Call::Unmap { .. }) => true,
        _ => a == b,
    }
}

/// The function at a [`MockBus`].
#[derive(Debug)]
pub struct MockFunction(Arc<MockBus>);

impl PciFunction for MockFunction {
    type Registers = MockRegisters;
    type Counters = MockCounters;

    fn identity(&self) -> io::Result<Identity> {
        self.0.record(Call::Identity)?;
        Ok(self.0.config.identity)
    }

    fn reset(&self) -> io::Result<()> {
        self.0.record(Call::Reset)
    }

    fn set_memory_space(&self, on: bool) -> io::Result<()> {
        self.0.record(Call::MemorySpace(on))
    }

    fn set_bus_master(&self, on: bool) -> io::Result<()> {
        self.0.record(Call::BusMaster(on))
    }

    fn bar0_len(&self) -> u64 {
        self.0.config.bar0_len
    }

    fn map_bar0(&self) -> io::Result<MockRegisters> {
        self.0.record(Call::MapBar)?;
        Ok(MockRegisters { bus: Arc::clone(&self.0), written: Mutex::default() })
    }

    fn vectors(&self) -> usize {
        self.0.config.vectors
    }

    fn enable_vectors(&self, count: usize) -> io::Result<MockCounters> {
        self.0.record(Call::EnableVectors(count))?;
        Ok(MockCounters(Arc::clone(&self.0)))
    }

    fn disable_vectors(&self) -> io::Result<()> {
        self.0.record(Call::DisableVectors)
    }

    fn iommu_page(&self) -> usize {
        self.0.config.page
    }

    fn iova_ranges(&self) -> Vec<Range<u64>> {
        self.0.config.ranges.clone()
    }

    unsafe fn map(&self, iova: u64, ptr: NonNull<u8>, len: usize) -> io::Result<()> {
        let bus = &self.0;
        bus.record(Call::Map { iova, len })?;
        let page = bus.config.page;
        if iova % page as u64 != 0 || ptr.as_ptr() as usize % page != 0 || len % page != 0 || len == 0 {
            return Err(bus.breach(format!("mapping of {len} bytes at {ptr:p} to {iova:#x} is not on whole pages")));
        }
        let end = iova + len as u64;
        if !bus.config.ranges.iter().any(|range| range.start <= iova && end <= range.end) {
            return Err(bus.breach(format!("mapping of {len} bytes to {iova:#x} is outside the allowed ranges")));
        }
        let mut mapped = lock(&bus.mapped);
        if let Some((other, bytes)) = mapped.range(..end).next_back().filter(|(other, bytes)| **other + **bytes as u64 > iova) {
            return Err(bus.breach(format!("mapping of {len} bytes to {iova:#x} overlaps that of {bytes} bytes to {other:#x}")));
        }
        mapped.insert(iova, len);
        Ok(())
    }

    fn unmap(&self, iova: u64, len: usize) -> io::Result<()> {
        self.0.record(Call::Unmap { iova, len })?;
        let mut mapped = lock(&self.0.mapped);
        if mapped.get(&iova) != Some(&len) {
            return Err(self.0.breach(format!("{len} bytes at {iova:#x} are no mapping")));
        }
        mapped.remove(&iova);
        Ok(())
    }
}

impl Drop for MockFunction {
    fn drop(&mut self) {
        // Closing takes all mappings back.
        lock(&self.0.mapped).clear();
        lock(&self.0.calls).push(Call::Close);
    }
}

/// BAR0 of a [`MockFunction`]: values after reset, of a card that is ready, and what was written.
#[derive(Debug)]
pub struct MockRegisters {
    bus: Arc<MockBus>,
    written: Mutex<BTreeMap<usize, u32>>,
}

impl Registers for MockRegisters {
    fn len_bytes(&self) -> usize {
        self.bus.config.bar0_len as usize
    }

    fn read(&self, offset: usize) -> u32 {
        lock(&self.bus.calls).push(Call::Read(offset));
        if offset == Status::OFFSET as usize {
            return Status::reset().with(Status::READY, 1).raw();
        }
        let reset = BAR0.iter().find(|register| register.offset as usize == offset).map_or(0, |register| register.reset);
        lock(&self.written).get(&offset).copied().unwrap_or(reset)
    }

    fn write(&self, offset: usize, value: u32) {
        lock(&self.bus.calls).push(Call::Write(offset, value));
        lock(&self.written).insert(offset, value);
    }
}

impl Drop for MockRegisters {
    fn drop(&mut self) {
        lock(&self.bus.calls).push(Call::UnmapBar);
    }
}

/// Event counters of a [`MockFunction`].
#[derive(Debug)]
pub struct MockCounters(Arc<MockBus>);

impl Counters for MockCounters {
    fn raised(&self, _timeout_ms: u32) -> u32 {
        let raised = self.0.counters.load(Ordering::Acquire);
        self.0.counters.fetch_and(!self.0.stolen.swap(0, Ordering::AcqRel), Ordering::AcqRel);
        raised
    }

    fn take(&self, vector: u32) -> bool {
        let bit = 1 << vector;
        self.0.counters.fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }
}

impl Drop for MockCounters {
    fn drop(&mut self) {
        lock(&self.0.calls).push(Call::DropCounters);
    }
}
