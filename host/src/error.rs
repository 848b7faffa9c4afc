//! What can go wrong, with the values that it is about.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use verbena_abi::queue::{CommandCode, CommandOp, QpState};

use crate::ndk::NtStatus;

/// Any failure of the driver.
///
/// A failing call has changed nothing that the caller can see, unless its documentation says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The identity register holds something else.
    #[error("no Verbena card: identity register is {found:#010x}, expected {expected:#010x}")]
    NotVerbena {
        /// What was read.
        found: u32,
        /// What a card of this kind answers.
        expected: u32,
    },
    /// The card's interface has another major number.
    #[error("the card speaks interface {card_major}.{card_minor}, this driver {driver_major}.{driver_minor}")]
    AbiVersion {
        /// Major number of the card.
        card_major: u16,
        /// Minor number of the card.
        card_minor: u16,
        /// Major number of the driver.
        driver_major: u16,
        /// Minor number of the driver.
        driver_minor: u16,
    },
    /// A capability register holds a value that the driver cannot work with.
    #[error("capability {register} is {value}, usable are {min} to {max}")]
    BadCapability {
        /// Name of the register or field.
        register: &'static str,
        /// What was read.
        value: u32,
        /// Smallest usable value.
        min: u32,
        /// Largest usable value.
        max: u32,
    },
    /// Register reads give all ones: the card is unplugged, in reset or has no power.
    #[error("the card is gone: {register} reads all ones")]
    DeviceRemoved {
        /// Register that was read.
        register: &'static str,
    },
    /// The card did not become ready.
    #[error("the card is not ready after {rounds} waits: Status is {status:#010x}")]
    NotReady {
        /// Last value of the status register.
        status: u32,
        /// How often the driver waited.
        rounds: u32,
    },
    /// A blocking call reached its bound. What it started goes on and is undone when it ends.
    #[error("gave up waiting for {what} after {rounds} waits ({state})")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How often the driver waited.
        rounds: u32,
        /// What the driver knows about the delay.
        state: String,
    },
    /// No memory that the card can reach.
    #[error("out of memory: {len_bytes} bytes for the card, aligned to {align}")]
    OutOfMemory {
        /// Bytes asked for.
        len_bytes: usize,
        /// Alignment asked for.
        align: usize,
    },
    /// All numbers of a kind are taken.
    #[error("all {limit} {what} are in use")]
    OutOfNumbers {
        /// Kind of object.
        what: &'static str,
        /// How many there are.
        limit: u32,
    },
    /// Too many commands wait for the card.
    #[error("{limit} commands wait for the card already")]
    TooManyCommands {
        /// How many may wait.
        limit: usize,
    },
    /// An argument exceeds a limit of the card.
    #[error("{what} is {value}, the limit is {limit}")]
    AboveLimit {
        /// Name of the argument.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The largest that is allowed.
        limit: u64,
    },
    /// An argument is smaller than it may be.
    #[error("{what} is {value}, at least {min} is needed")]
    BelowMinimum {
        /// Name of the argument.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The smallest that is allowed.
        min: u64,
    },
    /// An argument is none of the values that exist.
    #[error("{what} is {value:#x}, which is not one of: {allowed}")]
    BadValue {
        /// Name of the argument.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The values that exist, in words.
        allowed: &'static str,
    },
    /// Flags that do not exist.
    #[error("{what} flags {flags:#x} are not all known; known are {known:#x}")]
    BadFlags {
        /// Family of the flags.
        what: &'static str,
        /// The flags given.
        flags: u32,
        /// All known flags.
        known: u32,
    },
    /// Moderation of a CQ without a limit of time and without one of completions would never call.
    #[error("moderation needs a limit: a time, a number of completions up to the CQ's depth, or both")]
    UnlimitedModeration,
    /// A range is not inside its buffer.
    #[error("bytes {offset} to {offset} + {len_bytes} are outside a buffer of {size_bytes} bytes")]
    OutOfBounds {
        /// First byte.
        offset: usize,
        /// Bytes.
        len_bytes: usize,
        /// Size of the buffer.
        size_bytes: usize,
    },
    /// An object of another adapter was given.
    #[error("the {what} belongs to another adapter")]
    OtherAdapter {
        /// Kind of object.
        what: &'static str,
    },
    /// The adapter has no address of the family of the peer's.
    #[error("the peer has an {family} address and this adapter has none")]
    NoLocalAddress {
        /// `IPv4` or `IPv6`.
        family: &'static str,
    },
    /// A send was posted to a QP that is not connected.
    #[error("QP {qpn} is not connected: its state is {state:?}")]
    NotConnected {
        /// Queue pair number.
        qpn: u32,
        /// State as the driver knows it.
        state: QpState,
    },
    /// The QP's state does not allow the call.
    #[error("QP {qpn} is in state {state:?}, the call needs {needed}")]
    WrongState {
        /// Queue pair number.
        qpn: u32,
        /// State as the driver knows it.
        state: QpState,
        /// The states that would do.
        needed: &'static str,
    },
    /// A change of the QP is under way already.
    #[error("QP {qpn} is being changed by an earlier call")]
    ChangeUnderWay {
        /// Queue pair number.
        qpn: u32,
    },
    /// The call was overtaken by a flush, an error or a close.
    #[error("QP {qpn} was flushed meanwhile")]
    Cancelled {
        /// Queue pair number.
        qpn: u32,
    },
    /// All requests that the queue was made for are outstanding.
    #[error("the {queue} queue of QP {qpn} holds {depth} requests, its full depth")]
    QueueFull {
        /// `send` or `receive`.
        queue: &'static str,
        /// Queue pair number.
        qpn: u32,
        /// Depth in requests.
        depth: u32,
    },
    /// A CQ that was overrun takes no QP any more.
    #[error("CQ {cqn} was overrun: nothing completes on it any more")]
    DeadCq {
        /// CQ number.
        cqn: u32,
    },
    /// A receive was posted to a QP that was flushed or has failed.
    #[error("QP {qpn} was flushed or has failed and takes no receives any more")]
    ReceivesStopped {
        /// Queue pair number.
        qpn: u32,
    },
    /// More SGEs than the QP was made for.
    #[error("{sges} SGEs, the QP was made for {limit}")]
    TooManySges {
        /// Number given.
        sges: usize,
        /// Number allowed.
        limit: u32,
    },
    /// The SGEs add up to more than a message may have.
    #[error("a message of {len_bytes} bytes, the limit is {limit}")]
    MessageTooLong {
        /// Sum of the SGEs.
        len_bytes: u64,
        /// Largest message.
        limit: u64,
    },
    /// More inline data than the QP was made for; the card may take none at all.
    #[error("{len_bytes} bytes of inline data, the limit is {limit}")]
    InlineTooLong {
        /// Sum of the SGEs.
        len_bytes: u64,
        /// Largest inline message.
        limit: u32,
    },
    /// No pages, or more than a fast registration may have.
    #[error("a fast registration of {pages} pages; 1 to {limit} are possible")]
    TooManyPages {
        /// Number given.
        pages: u32,
        /// Number allowed.
        limit: u32,
    },
    /// A local address is no address of the adapter.
    #[error("{address} is not an address of this adapter")]
    NotOurAddress {
        /// The address.
        address: IpAddr,
    },
    /// A local address and port are in use.
    #[error("{address} is in use by another endpoint of this adapter")]
    AddressInUse {
        /// Address and port.
        address: SocketAddr,
    },
    /// No free port is left.
    #[error("all ports from {first} to {last} are in use")]
    OutOfPorts {
        /// First port that is handed out.
        first: u16,
        /// Last one.
        last: u16,
    },
    /// There is a connection between these two addresses already.
    #[error("there is a connection from {local} to {peer} already")]
    ConnectionExists {
        /// Own address and port.
        local: SocketAddr,
        /// The peer's.
        peer: SocketAddr,
    },
    /// No adapter answers to the peer's address.
    #[error("nobody answers at {address}")]
    HostUnreachable {
        /// The address.
        address: IpAddr,
    },
    /// Nobody listens at the peer's address and port, or the peer has rejected.
    #[error("{address} refuses the connection")]
    ConnectionRefused {
        /// Address and port of the peer.
        address: SocketAddr,
    },
    /// The peer gave up, or the connection was closed.
    #[error("the connection was aborted")]
    ConnectionAborted,
    /// The connector is not in a state for the call.
    #[error("the connector is {state}, the call needs one that is {needed}")]
    WrongConnector {
        /// What it is.
        state: &'static str,
        /// What it should be.
        needed: &'static str,
    },
    /// The connector has been used for a connection.
    #[error("the connector is in use already: it is {state}")]
    ConnectorUsed {
        /// What it is.
        state: &'static str,
    },
    /// More private data than a message carries.
    #[error("{len_bytes} bytes of private data, the limit is {limit}")]
    PrivateDataTooLong {
        /// Bytes given.
        len_bytes: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The card refused a command and changed nothing.
    #[error("the card refused {op:?} of number {number}: {code:?}")]
    CommandRefused {
        /// The command.
        op: CommandOp,
        /// Number of the queue, or key of the region.
        number: u32,
        /// Its answer.
        code: CommandCode,
    },
    /// The card answered with something that is not defined.
    #[error("the card answered {value:#x} to {op:?} of number {number}, which means nothing")]
    BadAnswer {
        /// The command.
        op: CommandOp,
        /// Number of the queue, or key of the region.
        number: u32,
        /// Its answer.
        value: u32,
    },
    /// No PCI function has the card's ids.
    #[error("no PCI function {vendor:04x}:{device:04x} in {}", folder.display())]
    NoCard {
        /// Vendor id of a card.
        vendor: u16,
        /// Device id of a card.
        device: u16,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// The PCI function is none of the card's.
    #[error("PCI function {found_vendor:04x}:{found_device:04x} is no Verbena card, which is {vendor:04x}:{device:04x}")]
    OtherFunction {
        /// Its vendor id.
        found_vendor: u16,
        /// Its device id.
        found_device: u16,
        /// Vendor id of a card.
        vendor: u16,
        /// Device id of a card.
        device: u16,
    },
    /// The card belongs to another driver of the system, or to none.
    #[error(
        "the card {address} is bound to {}, and vfio-pci is needed: write vfio-pci to its driver_override, \
         {address} to its driver/unbind if it is bound, and {address} to /sys/bus/pci/drivers_probe",
        driver.as_deref().unwrap_or("no driver")
    )]
    NotBound {
        /// Address on PCI.
        address: String,
        /// The driver that has it.
        driver: Option<String>,
    },
    /// The system has no IOMMU for the card.
    #[error("the card {address} is in no IOMMU group: the system's IOMMU is off")]
    NoIommu {
        /// Address on PCI.
        address: String,
    },
    /// The card cannot be reset, so nobody knows what it still does for a driver that is gone.
    #[error("the card cannot be reset alone, by a function-level reset or one of its slot: {source}")]
    NoReset {
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The PCI function lacks something that the driver needs.
    #[error("the card's {what} is {value}, at least {min} is needed")]
    PciLimit {
        /// What it lacks.
        what: &'static str,
        /// How much it has.
        value: u64,
        /// How much is needed.
        min: u64,
    },
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl Error {
    /// Returns the status that an NDK consumer gets. Total: a new variant does not compile until it has one.
    pub fn nt_status(&self) -> NtStatus {
        match self {
            Self::NotVerbena { .. } => NtStatus::NOT_SUPPORTED,
            Self::AbiVersion { .. } => NtStatus::BAD_VERSION,
            Self::BadCapability { .. } => NtStatus::INTERNAL_ERROR,
            Self::DeviceRemoved { .. } => NtStatus::DEVICE_REMOVED,
            Self::NotReady { .. } => NtStatus::ADAPTER_NOT_READY,
            Self::Timeout { .. } => NtStatus::IO_TIMEOUT,
            Self::OutOfMemory { .. } => NtStatus::INSUFFICIENT_RESOURCES,
            Self::OutOfNumbers { .. } => NtStatus::INSUFFICIENT_RESOURCES,
            Self::TooManyCommands { .. } => NtStatus::INSUFFICIENT_RESOURCES,
            Self::AboveLimit { .. } => NtStatus::INVALID_PARAMETER,
            Self::BelowMinimum { .. } => NtStatus::INVALID_PARAMETER,
            Self::BadValue { .. } => NtStatus::INVALID_PARAMETER,
            Self::BadFlags { .. } => NtStatus::INVALID_PARAMETER,
            Self::UnlimitedModeration => NtStatus::INVALID_PARAMETER_MIX,
            Self::OutOfBounds { .. } => NtStatus::INVALID_PARAMETER,
            Self::OtherAdapter { .. } => NtStatus::INVALID_PARAMETER,
            Self::NoLocalAddress { .. } => NtStatus::INVALID_ADDRESS,
            Self::NotConnected { .. } => NtStatus::CONNECTION_INVALID,
            Self::WrongState { .. } => NtStatus::CONNECTION_ACTIVE,
            Self::ChangeUnderWay { .. } => NtStatus::DEVICE_BUSY,
            Self::Cancelled { .. } => NtStatus::CANCELLED,
            Self::DeadCq { .. } => NtStatus::INVALID_DEVICE_REQUEST,
            Self::ReceivesStopped { .. } => NtStatus::CONNECTION_INVALID,
            Self::QueueFull { .. } => NtStatus::NO_MORE_ENTRIES,
            Self::TooManySges { .. } => NtStatus::DATA_OVERRUN,
            Self::MessageTooLong { .. } => NtStatus::BUFFER_OVERFLOW,
            Self::InlineTooLong { .. } => NtStatus::BUFFER_OVERFLOW,
            Self::TooManyPages { .. } => NtStatus::IMPLEMENTATION_LIMIT,
            Self::NotOurAddress { .. } => NtStatus::INVALID_ADDRESS,
            Self::AddressInUse { .. } => NtStatus::SHARING_VIOLATION,
            Self::OutOfPorts { .. } => NtStatus::TOO_MANY_ADDRESSES,
            Self::ConnectionExists { .. } => NtStatus::ADDRESS_ALREADY_EXISTS,
            Self::HostUnreachable { .. } => NtStatus::HOST_UNREACHABLE,
            Self::ConnectionRefused { .. } => NtStatus::CONNECTION_REFUSED,
            Self::ConnectionAborted => NtStatus::CONNECTION_ABORTED,
            Self::WrongConnector { .. } => NtStatus::CONNECTION_INVALID,
            Self::ConnectorUsed { .. } => NtStatus::CONNECTION_ACTIVE,
            Self::PrivateDataTooLong { .. } => NtStatus::INVALID_BUFFER_SIZE,
            Self::CommandRefused { .. } => NtStatus::INTERNAL_ERROR,
            Self::BadAnswer { .. } => NtStatus::INTERNAL_ERROR,
            Self::NoCard { .. } => NtStatus::NOT_SUPPORTED,
            Self::OtherFunction { .. } => NtStatus::NOT_SUPPORTED,
            Self::NotBound { .. } => NtStatus::ADAPTER_NOT_READY,
            Self::NoIommu { .. } => NtStatus::ADAPTER_NOT_READY,
            Self::NoReset { .. } => NtStatus::NOT_SUPPORTED,
            Self::PciLimit { .. } => NtStatus::NOT_SUPPORTED,
            Self::Os { .. } => NtStatus::INSUFFICIENT_RESOURCES,
        }
    }
}
