//! Socket addresses, as the system lays them out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use verbena_host::ndk::NtStatus;

use crate::abi::{NTSTATUS, SOCKADDR, ULONG};
use crate::object::status;

/// `AF_INET`.
const INET: u16 = 2;
/// `AF_INET6`: one of the few numbers on which systems differ.
const INET6: u16 = if cfg!(windows) { 23 } else { 10 };
/// `sizeof(struct sockaddr_in)`.
const IN_BYTES: usize = 16;
/// `sizeof(struct sockaddr_in6)`.
const IN6_BYTES: usize = 28;

/// Reads an address, or nothing if it is too short or of no family that there is.
///
/// # Safety
/// The pointer is null, or valid for `len` bytes.
pub(crate) unsafe fn read(address: *const SOCKADDR, len: ULONG) -> Option<SocketAddr> {
    // SAFETY: the caller vouches for it.
    let bytes = unsafe { crate::object::bytes(address.cast(), len)? };
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    let ip = match family {
        INET => IpAddr::V4(Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?)),
        INET6 => IpAddr::V6(Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Writes an address where the consumer wants it, by NDK's rule for buffers: the length that is needed always comes back.
///
/// # Safety
/// `len` is null or valid; `to` is null, or valid for `*len` bytes.
pub(crate) unsafe fn write(address: Option<SocketAddr>, to: *mut SOCKADDR, len: *mut ULONG) -> NTSTATUS {
    // SAFETY: the caller vouches for it.
    let (Some(address), Some(len)) = (address, unsafe { len.as_mut() }) else { return status(NtStatus::INVALID_DEVICE_REQUEST) };
    let mut bytes = [0u8; IN6_BYTES];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    let needed = match address.ip() {
        IpAddr::V4(ip) => {
            bytes[..2].copy_from_slice(&INET.to_ne_bytes());
            bytes[4..8].copy_from_slice(&ip.octets());
            IN_BYTES
        }
        IpAddr::V6(ip) => {
            bytes[..2].copy_from_slice(&INET6.to_ne_bytes());
            bytes[8..24].copy_from_slice(&ip.octets());
            IN6_BYTES
        }
    };
    let given = std::mem::replace(len, needed as ULONG) as usize;
    if to.is_null() || given < needed {
        return status(NtStatus::BUFFER_TOO_SMALL);
    }
    // SAFETY: `to` is valid for the length that was given, which is enough.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), needed) };
    status(NtStatus::SUCCESS)
}
