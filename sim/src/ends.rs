//! Both ends of a transfer: what the driver is asked for before the first request.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use verbena_host::{Adapter, AdapterConfig, Cq, Device, DmaBuffer, Error, Mr, Pd, Qp, QpOptions, QpPeer};

use crate::World;

/// What both ends agree on.
#[derive(Clone, Copy, Debug)]
pub struct EndOptions {
    /// Queue pairs.
    pub qps: u32,
    /// Requests of a QP that are under way at once.
    pub depth: u32,
    /// Path MTU, bytes.
    pub mtu: u32,
    /// Bytes of inline data of a request.
    pub inline_bytes: u32,
    /// Frames are tagged for this VLAN.
    pub vlan: Option<u16>,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// First PSNs come from it.
    pub seed: u64,
}

/// One end of a transfer: a card with a region, a completion queue, and queue pairs.
#[derive(Debug)]
pub struct End {
    /// The card.
    pub adapter: Arc<Adapter>,
    /// Where all requests complete.
    pub cq: Arc<Cq>,
    /// The memory that is read or written.
    pub mr: Arc<Mr>,
    /// The queue pairs.
    pub qps: Vec<Arc<Qp>>,
}

impl End {
    /// Opens card `number` and creates what a transfer needs, with `memory_bytes` that the peer has these `rights` to.
    ///
    /// Fails as the driver does.
    pub fn open(world: &Arc<World>, number: usize, options: &EndOptions, memory_bytes: usize, rights: u8) -> Result<Self, Error> {
        let last = number as u8 + 1;
        let (ipv4, ipv6) = if options.ipv6 {
            (None, Some(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into())))
        } else {
            (Some(Ipv4Addr::new(192, 0, 2, last)), None)
        };
        let device = world.device(number);
        let memory: DmaBuffer = Arc::clone(&device).alloc(memory_bytes.max(1), 64)?;
        let adapter = Adapter::open(device, AdapterConfig::new([2, 0, 0, 0, 0, last], ipv4, ipv6))?;
        let pd = Pd::create(&adapter)?;
        let cq = Cq::create_blocking(&adapter, options.qps.saturating_mul(options.depth), None)?;
        // An address of its own choice, so that the frames are the same in each run.
        let mr = Mr::register_at_blocking(&pd, memory, 0x7000_0000_0000 + ((number as u64) << 40), rights)?;
        let mut qps = Vec::new();
        for index in 0..options.qps {
            let first_psn =
                Some((options.seed as u32).wrapping_mul(0x9E_3779).wrapping_add(index * 0x1111 + number as u32 * 0x5555) & 0xFF_FFFF);
            let qp = QpOptions { first_psn, inline_bytes: options.inline_bytes, ..QpOptions::sender(options.depth) };
            qps.push(Qp::create_blocking(&pd, &cq, &cq, qp)?);
        }
        Ok(Self { adapter, cq, mr, qps })
    }

    /// Connects the QPs to those of the other end, one to one.
    pub fn connect(&self, to: &Self, options: &EndOptions) -> Result<(), Error> {
        for (mine, other) in self.qps.iter().zip(&to.qps) {
            let mut peer = QpPeer::new(other.address(), options.mtu);
            peer.vlan_tci = options.vlan;
            mine.connect_blocking(&peer)?;
        }
        Ok(())
    }

    /// Returns all counters of the card that are not 0.
    pub fn describe(&self) -> String {
        let counters = self.adapter.read_counters();
        let counts: Vec<String> = counters.iter().filter(|(_, count)| *count != 0).map(|(name, count)| format!("{name} {count}")).collect();
        counts.join(", ")
    }

    /// Closes everything, and sees to it that nothing is left on the card.
    pub fn close(self) -> Result<(), Error> {
        let Self { adapter, cq, mr, qps } = self;
        for qp in qps {
            qp.close_blocking()?;
        }
        mr.close_blocking()?;
        cq.close_blocking()?;
        adapter.close_blocking()
    }
}
