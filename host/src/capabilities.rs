//! The limits of a card, read from its capability registers and checked before anything relies on them.

use verbena_abi::limits;
use verbena_abi::queue::mtu_code;
use verbena_abi::regs::{self, Doorbell, BAR0_ADDR_BITS, CQ_INDEX_BITS, DOORBELL_PAGE};

use crate::adapter::AdapterInfo;
use crate::device::Bar;
use crate::error::Error;

/// Queues whose doorbell pages lie inside BAR0.
const MAX_PAGES: u32 = ((1 << BAR0_ADDR_BITS) - Doorbell::Sq.offset(0)) / DOORBELL_PAGE;
/// Regions that fit the index part of a key.
const MAX_KEYS: u32 = 1 << 24;
/// Send indices have 16 bits, and a distance must be told from its complement.
const MAX_LOG_SQ: u32 = 15;
/// CQ indices have 24 bits in the doorbells.
const MAX_LOG_CQ: u32 = CQ_INDEX_BITS as u32 - 1;
/// More events than that can never be outstanding.
const MAX_LOG_EQ: u32 = 24;

/// Reads all capabilities. Returns them and log2 of the deepest event queue.
///
/// Fails with [`Error::BadCapability`] for a value that the driver could not work with, and with
/// [`Error::DeviceRemoved`] if a register reads all ones.
pub(crate) fn read(bar: &dyn Bar, abi_version: (u16, u16)) -> Result<(AdapterInfo, u8), Error> {
    let qps = in_range("CapQps", read_one(bar, "CapQps", regs::CapQps::OFFSET)?, limits::FIRST_QPN + 1, MAX_PAGES)?;
    let cqs = in_range("CapCqs", read_one(bar, "CapCqs", regs::CapCqs::OFFSET)?, 1, MAX_PAGES)?;
    let mrs = in_range("CapMrs", read_one(bar, "CapMrs", regs::CapMrs::OFFSET)?, 2, MAX_KEYS)?;
    let pds = in_range("CapPds", read_one(bar, "CapPds", regs::CapPds::OFFSET)?, 2, 1 << 16)?;

    let queues = read_one(bar, "CapQueues", regs::CapQueues::OFFSET)?;
    let log_sq = in_range("CapQueues.LOG_SQ", regs::CapQueues::LOG_SQ.get(queues), 0, MAX_LOG_SQ)?;
    let log_rq = in_range("CapQueues.LOG_RQ", regs::CapQueues::LOG_RQ.get(queues), 0, MAX_LOG_SQ)?;
    let log_cq = in_range("CapQueues.LOG_CQ", regs::CapQueues::LOG_CQ.get(queues), 0, MAX_LOG_CQ)?;
    let log_eq = in_range("CapQueues.LOG_EQ", regs::CapQueues::LOG_EQ.get(queues), 1, MAX_LOG_EQ)?;

    let sges = read_one(bar, "CapSges", regs::CapSges::OFFSET)?;
    let layout = verbena_abi::limits::MAX_SGES as u32;
    let max_send_sges = in_range("CapSges.INITIATOR", regs::CapSges::INITIATOR.get(sges), 1, layout)?;
    let inline_layout = verbena_abi::limits::MAX_INLINE as u32;
    let max_inline_bytes = in_range("CapInline", read_one(bar, "CapInline", regs::CapInline::OFFSET)?, 0, inline_layout)?;
    let max_message_bytes = in_range("CapMessage", read_one(bar, "CapMessage", regs::CapMessage::OFFSET)?, 1, 1 << 31)?;
    let max_mtu_bytes = in_range("CapMtu", read_one(bar, "CapMtu", regs::CapMtu::OFFSET)?, 256, 4096)?;
    if mtu_code(max_mtu_bytes).is_none() {
        return Err(Error::BadCapability { register: "CapMtu", value: max_mtu_bytes, min: 256, max: 4096 });
    }
    let vectors = in_range("CapVectors", read_one(bar, "CapVectors", regs::CapVectors::OFFSET)?, 1, 2048)?;
    let reads = read_one(bar, "CapReads", regs::CapReads::OFFSET)?;
    let clock_khz = read_one(bar, "CapClock", regs::CapClock::OFFSET)?;

    let info = AdapterInfo {
        abi_version,
        max_qps: qps.saturating_sub(limits::FIRST_QPN),
        max_cqs: cqs,
        max_mrs: mrs - 1,
        max_pds: pds - 1,
        max_send_depth: 1 << log_sq,
        max_receive_depth: if log_rq == 0 { 0 } else { 1 << log_rq },
        max_cq_depth: 1 << log_cq,
        max_send_sges,
        max_receive_sges: regs::CapSges::RECEIVE.get(sges),
        max_read_sges: regs::CapSges::READ.get(sges),
        max_inline_bytes,
        max_message_bytes,
        max_mtu_bytes,
        vectors,
        max_inbound_reads: regs::CapReads::INBOUND.get(reads),
        max_outbound_reads: regs::CapReads::OUTBOUND.get(reads),
        clock_khz,
    };
    Ok((info, log_eq as u8))
}

fn read_one(bar: &dyn Bar, register: &'static str, offset: u32) -> Result<u32, Error> {
    match bar.read32(offset) {
        u32::MAX => Err(Error::DeviceRemoved { register }),
        value => Ok(value),
    }
}

fn in_range(register: &'static str, value: u32, min: u32, max: u32) -> Result<u32, Error> {
    if (min..=max).contains(&value) {
        Ok(value)
    } else {
        Err(Error::BadCapability { register, value, min, max })
    }
}
