//! Addresses of QPs, and the way from RESET to RTS for two ends that exchange them by themselves.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use verbena_abi::arith::Psn;
use verbena_abi::queue::{access, mtu_code, qp_flags, CmdQp, QpState};
use verbena_abi::wire::DEFAULT_PKEY;

use crate::adapter::AdapterConfig;
use crate::command::{Callback, Submitted};
use crate::error::Error;
use crate::qp::Qp;

/// Smallest UDP source port of RoCEv2 (IBTA annex A17 leaves the range to the sender; this is the dynamic one).
const FIRST_SOURCE_PORT: u16 = 0xC000;

/// Local ACK timeout exponent by default: 67 ms.
pub(crate) const ACK_TIMEOUT: u8 = 14;
/// Retries by default.
pub(crate) const RETRY_COUNT: u8 = 7;

/// Where a QP is reached: what two ends tell each other before they connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpAddress {
    /// Queue pair number.
    pub qpn: u32,
    /// First PSN that the QP sends.
    pub psn: u32,
    /// IP address.
    pub ip: IpAddr,
    /// Station address of the QP's card, or of the next hop to it.
    pub mac: [u8; 6],
}

/// A peer and how to talk to it. Both ends must agree on the MTU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QpPeer {
    /// Where it is.
    pub address: QpAddress,
    /// Path MTU, bytes: 256, 512, 1024, 2048 or 4096.
    pub mtu_bytes: u32,
    /// What the peer may do here, bits of [`access`].
    pub access: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Type of service, or traffic class.
    pub traffic_class: u8,
    /// 802.1Q tag control information, if frames are to be tagged.
    pub vlan_tci: Option<u16>,
    /// UDP source port, C000 to FFFF; none: derived from both QPNs.
    pub source_port: Option<u16>,
    /// Local ACK timeout exponent, 0 to 31: 4.096 µs times two to that power; 0: off. Give it several round trips.
    pub timeout: u8,
    /// Times that the card sends again without progress, 0 to 7, before the request fails with [`crate::CqeStatus::RetryExceeded`].
    pub retry_count: u8,
    /// Retries after a receiver-not-ready, 0 to 7; 7: without end.
    pub rnr_retry: u8,
}

fn at_most(what: &'static str, value: u32, limit: u32) -> Result<(), Error> {
    if value > limit {
        return Err(Error::AboveLimit { what, value: value.into(), limit: limit.into() });
    }
    Ok(())
}

/// Checks a timeout exponent and a retry count against their fields.
pub(crate) fn check_retries(timeout: u8, retry_count: u8) -> Result<(), Error> {
    at_most("timeout exponent", timeout.into(), 31)?;
    at_most("retry count", retry_count.into(), 7)
}

impl QpPeer {
    /// Returns a peer that may write and read, with TTL 64, a timeout of 67 ms and seven retries.
    pub const fn new(address: QpAddress, mtu_bytes: u32) -> Self {
        Self {
            address,
            mtu_bytes,
            access: access::REMOTE_WRITE | access::REMOTE_READ,
            ttl: 64,
            traffic_class: 0,
            vlan_tci: None,
            source_port: None,
            timeout: ACK_TIMEOUT,
            retry_count: RETRY_COUNT,
            rnr_retry: 7,
        }
    }

    /// Checks everything against its range and puts it into a context.
    pub(crate) fn apply(&self, context: &mut CmdQp, config: &AdapterConfig, max_mtu_bytes: u32) -> Result<(), Error> {
        let mtu = mtu_code(self.mtu_bytes).ok_or(Error::BadValue {
            what: "path MTU",
            value: self.mtu_bytes.into(),
            allowed: "256, 512, 1024, 2048, 4096 bytes",
        })?;
        at_most("path MTU", self.mtu_bytes, max_mtu_bytes)?;
        check_retries(self.timeout, self.retry_count)?;
        at_most("RNR retry count", self.rnr_retry.into(), 7)?;
        at_most("QPN of the peer", self.address.qpn, Psn::MASK)?;
        at_most("PSN of the peer", self.address.psn, Psn::MASK)?;
        let known = access::REMOTE_WRITE | access::REMOTE_READ | access::REMOTE_ATOMIC;
        if self.access & !known != 0 {
            return Err(Error::BadFlags { what: "peer access", flags: self.access.into(), known: known.into() });
        }
        if self.address.qpn == 0 {
            return Err(Error::BelowMinimum { what: "QPN of the peer", value: 0, min: 1 });
        }
        let derived = FIRST_SOURCE_PORT | ((context.qpn.get() ^ self.address.qpn.rotate_left(7)) & 0x3FFF) as u16;
        let source_port = self.source_port.unwrap_or(derived);
        if source_port < FIRST_SOURCE_PORT {
            return Err(Error::BelowMinimum { what: "UDP source port", value: source_port.into(), min: FIRST_SOURCE_PORT.into() });
        }
        context.flags &= !(qp_flags::IPV6 | qp_flags::VLAN);
        context.remote_ip = match self.address.ip {
            IpAddr::V4(ip) if config.ipv4.is_some() => {
                let mut bytes = [0; 16];
                bytes[12..].copy_from_slice(&ip.octets());
                bytes
            }
            IpAddr::V6(ip) if config.ipv6.is_some() => {
                context.flags |= qp_flags::IPV6;
                ip.octets()
            }
            IpAddr::V4(_) => return Err(Error::NoLocalAddress { family: "IPv4" }),
            IpAddr::V6(_) => return Err(Error::NoLocalAddress { family: "IPv6" }),
        };
        if self.vlan_tci.is_some() {
            context.flags |= qp_flags::VLAN;
        }
        context.vlan_tci = self.vlan_tci.unwrap_or(0).into();
        context.mtu = mtu;
        context.access = self.access;
        context.ttl = self.ttl;
        context.traffic_class = self.traffic_class;
        context.remote_qpn = self.address.qpn.into();
        context.rq_psn = self.address.psn.into();
        context.source_port = source_port.into();
        context.remote_mac = self.address.mac;
        context.pkey = DEFAULT_PKEY.into();
        context.timeout = self.timeout;
        context.retry_count = self.retry_count;
        context.rnr_retry = self.rnr_retry;
        Ok(())
    }
}

impl Qp {
    /// Returns where this QP is reached: by IPv4 if the adapter has such an address, else by IPv6.
    pub fn address(&self) -> QpAddress {
        let config = self.pd().adapter().config();
        let ip = config.ipv4.map(IpAddr::V4).or(config.ipv6.map(IpAddr::V6));
        QpAddress { qpn: self.qpn(), psn: self.first_psn(), ip: ip.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), mac: config.mac }
    }

    /// Takes the QP through INIT and RTR to RTS: connected, as soon as the peer has done the same.
    ///
    /// The QP must be in RESET. If a step fails it is put back there, so that another attempt can be made.
    ///
    /// Fails inline with [`Error::WrongState`], [`Error::ChangeUnderWay`], the errors of a command, or those that
    /// name a value of `peer`; `done` gets the card's refusal or [`Error::Cancelled`] after a flush.
    pub fn connect(self: &Arc<Self>, peer: &QpPeer, done: impl FnOnce(Result<(), Error>) + Send + 'static) -> Result<Submitted, Error> {
        self.connect_up_to(peer, QpState::Rts, Box::new(done))
    }

    /// Does the first half of [`Qp::connect`]: the QP answers the peer's requests, and sends none before [`Qp::activate`].
    pub fn prepare(self: &Arc<Self>, peer: &QpPeer, done: impl FnOnce(Result<(), Error>) + Send + 'static) -> Result<Submitted, Error> {
        self.connect_up_to(peer, QpState::Rtr, Box::new(done))
    }

    /// Does the second half of [`Qp::connect`]: takes the QP from RTR to RTS. Errors as there; [`Error::Cancelled`] inline too.
    pub fn activate(self: &Arc<Self>, done: impl FnOnce(Result<(), Error>) + Send + 'static) -> Result<Submitted, Error> {
        step(self, self.context(), QpState::Rts, QpState::Rts, Box::new(done)).map_err(cancelled)
    }

    /// Puts a QP that was never used back to RESET, so that it can be connected anew; `done` is called in any case.
    pub fn give_up_connecting(self: &Arc<Self>, done: impl FnOnce() + Send + 'static) {
        if self.state() == QpState::Reset {
            return done();
        }
        give_up(self, Error::Cancelled { qpn: self.qpn() }, Box::new(|_| done()));
    }

    fn connect_up_to(self: &Arc<Self>, peer: &QpPeer, last: QpState, done: Callback<()>) -> Result<Submitted, Error> {
        let state = self.state();
        if state != QpState::Reset {
            return Err(Error::WrongState { qpn: self.qpn(), state, needed: "RESET" });
        }
        let adapter = self.pd().adapter();
        let mut context = self.context();
        peer.apply(&mut context, adapter.config(), adapter.info().max_mtu_bytes)?;
        step(self, context, QpState::Init, last, done)
    }

    /// Does what [`Qp::connect`] does and waits for the result; see [`crate::Adapter::block_on`] for bound and errors.
    pub fn connect_blocking(self: &Arc<Self>, peer: &QpPeer) -> Result<(), Error> {
        let adapter = self.pd().adapter();
        adapter.block_on(&format!("QP {} to be connected", self.qpn()), |done| self.connect(peer, done))
    }
}

/// Takes one step, and when it is done the next one, up to `last`.
fn step(qp: &Arc<Qp>, mut context: CmdQp, state: QpState, last: QpState, done: Callback<()>) -> Result<Submitted, Error> {
    context.state = state as u8;
    let next = Arc::clone(qp);
    qp.modify(context, move |outcome| {
        let following = match (outcome, state) {
            (Err(error), _) => return give_up(&next, error, done),
            (Ok(()), reached) if reached == last => return done(Ok(())),
            (Ok(()), QpState::Init) => QpState::Rtr,
            (Ok(()), _) => QpState::Rts,
        };
        // The callback must be called once, whether the next step fails now or later; so it waits in a slot.
        let slot = Arc::new(std::sync::Mutex::new(Some(done)));
        let later = Arc::clone(&slot);
        let call = move |outcome| {
            if let Some(done) = crate::lock(&later).take() {
                done(outcome);
            }
        };
        if let Err(error) = step(&next, context, following, last, Box::new(call)) {
            if let Some(done) = crate::lock(&slot).take() {
                give_up(&next, error, done);
            }
        }
    })
}

/// Says of a step that came too late, since the QP was flushed between two of them, what a step under way would have met.
fn cancelled(error: Error) -> Error {
    match error {
        Error::WrongState { qpn, state: QpState::Error, .. } => Error::Cancelled { qpn },
        other => other,
    }
}

/// Puts the QP back to RESET, unless it is in error, and then reports why the attempt failed.
fn give_up(qp: &Arc<Qp>, error: Error, done: Callback<()>) {
    if qp.state() == QpState::Error {
        return done(Err(cancelled(error)));
    }
    let mut context = qp.context();
    context.state = QpState::Reset as u8;
    let slot = Arc::new(std::sync::Mutex::new(Some((error, done))));
    let later = Arc::clone(&slot);
    let report = move || {
        let taken = crate::lock(&later).take();
        if let Some((error, done)) = taken {
            done(Err(error));
        }
    };
    let reported = report.clone();
    if qp.modify(context, move |_| reported()).is_err() {
        report();
    }
}
