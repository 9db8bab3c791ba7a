//! Page checksums: a thin layer between SQLite and the file system.
//!
//! SQLite keeps four bytes free at the end of every page of the database file; here they become a checksum of the
//! page and its number, computed when a checkpoint writes the page and verified whenever it is read. Without it a
//! flipped bit in a b-tree header could make rows silently disappear, which no checksum inside a row can notice.
//!
//! Everything else is passed on to the system's own layer untouched: locks, shared memory, and all other files (the
//! WAL has checksums of its own). This is the only unsafe code of the store; it follows the contract in SQLite's
//! documentation of `sqlite3_vfs` and `sqlite3_io_methods`.

#![expect(unsafe_code, reason = "SQLite's file layer is a table of C functions")]

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use crc32fast::Hasher;
use rusqlite::ffi::{
    SQLITE_IOERR, SQLITE_IOERR_DATA, SQLITE_IOERR_SHORT_READ, SQLITE_OK, SQLITE_OPEN_MAIN_DB, sqlite3_file,
    sqlite3_filename, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs, sqlite3_vfs_find, sqlite3_vfs_register,
};

/// The name under which connections ask for this layer.
pub(crate) const LAYER: &CStr = c"polder-pages";
pub(crate) const PAGE_LEN: usize = 8192;
/// What SQLite must keep free at the end of each page.
pub(crate) const CHECKSUM_LEN: u8 = 4;

const CONTENT_LEN: usize = PAGE_LEN - CHECKSUM_LEN as usize;

/// The system's layer. Set once, before the first file is opened through ours; never freed by SQLite.
static SYSTEM: AtomicPtr<sqlite3_vfs> = AtomicPtr::new(ptr::null_mut());

/// Makes the layer known to SQLite; later calls do nothing. False when SQLite has no layer of its own.
pub(crate) fn register() -> bool {
    static DONE: OnceLock<bool> = OnceLock::new();
    *DONE.get_or_init(|| {
        // SAFETY: a null name asks for the default layer, which lives as long as the process.
        let system = unsafe { sqlite3_vfs_find(ptr::null()) };
        if system.is_null() {
            return false;
        }
        SYSTEM.store(system, Ordering::Release);
        // SAFETY: `system` is valid, and a copy shares only pointers to static functions and data. The functions that
        // are not replaced ignore which of the two structures they are called with.
        let mut layer = unsafe { ptr::read(system) };
        let Ok(own_len) = c_int::try_from(size_of::<sqlite3_file>()) else { return false };
        layer.szOsFile += own_len;
        layer.pNext = ptr::null_mut();
        layer.zName = LAYER.as_ptr();
        layer.xOpen = Some(open);
        // SAFETY: the structure is leaked, so it outlives every connection.
        unsafe { sqlite3_vfs_register(Box::into_raw(Box::new(layer)), 0) == SQLITE_OK }
    })
}

/// Our half of an open database file is the plain header SQLite asks for; the system's file follows it in the same
/// allocation, whose size `szOsFile` says.
unsafe fn system_file(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: the allocation holds both, and a header is one pointer, so the alignment stays.
    unsafe { file.add(1) }
}

/// Calls the method of the same name on the system's file.
macro_rules! pass_on {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        // SAFETY: SQLite calls methods only on files that `open` has opened, with arguments that fit the method.
        unsafe {
            let file = system_file($file);
            match (*(*file).pMethods).$method {
                Some(method) => method(file $(, $argument)*),
                None => SQLITE_IOERR,
            }
        }
    }};
}

unsafe extern "C" fn open(
    _: *mut sqlite3_vfs,
    name: sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let system = SYSTEM.load(Ordering::Acquire);
    // SAFETY: `register` stored a valid layer before SQLite could know this function; `file` has `szOsFile` bytes,
    // enough for the system's file with or without our header before it.
    unsafe {
        let Some(system_open) = (*system).xOpen else { return SQLITE_IOERR };
        let Some(methods) = own_methods(flags) else {
            return system_open(system, name, file, flags, out_flags);
        };
        let inner = system_file(file);
        (*inner).pMethods = ptr::null();
        let code = system_open(system, name, inner, flags, out_flags);
        // SQLite closes a file that failed to open exactly if it has methods.
        (*file).pMethods = if (*inner).pMethods.is_null() { ptr::null() } else { methods };
        code
    }
}

/// What stands before the system's methods in a file that is opened with these flags, if anything.
fn own_methods(flags: c_int) -> Option<&'static sqlite3_io_methods> {
    #[cfg(test)]
    if flags & rusqlite::ffi::SQLITE_OPEN_WAL != 0 {
        return Some(&faults::WAL_METHODS);
    }
    (flags & SQLITE_OPEN_MAIN_DB != 0).then_some(&METHODS)
}

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    buffer: *mut c_void,
    len: c_int,
    offset: sqlite3_int64,
) -> c_int {
    let code = pass_on!(file, xRead, buffer, len, offset);
    let Some(number) = page_number(len, offset) else { return code };
    if code != SQLITE_OK && code != SQLITE_IOERR_SHORT_READ {
        return code;
    }
    // SAFETY: the system has just filled `len` bytes, which is a whole page; with zeros where the file ends.
    let page = unsafe { &*buffer.cast::<[u8; PAGE_LEN]>() };
    if checksum(page, number) == page[CONTENT_LEN..] || is_hole(page) { code } else { SQLITE_IOERR_DATA }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    buffer: *const c_void,
    len: c_int,
    offset: sqlite3_int64,
) -> c_int {
    let Some(number) = page_number(len, offset) else {
        return pass_on!(file, xWrite, buffer, len, offset);
    };
    // SAFETY: SQLite gives `len` readable bytes, which is a whole page. They may be shared, so they are copied.
    let mut page = unsafe { *buffer.cast::<[u8; PAGE_LEN]>() };
    let checksum = checksum(&page, number);
    page[CONTENT_LEN..].copy_from_slice(&checksum);
    pass_on!(file, xWrite, page.as_ptr().cast(), len, offset)
}

/// The number of the page that is read or written as a whole; `None` for looks at the header only.
fn page_number(len: c_int, offset: sqlite3_int64) -> Option<u64> {
    let offset = u64::try_from(offset).ok()?;
    (usize::try_from(len) == Ok(PAGE_LEN) && offset % PAGE_LEN as u64 == 0)
        .then_some(offset / PAGE_LEN as u64)
}

fn checksum(page: &[u8; PAGE_LEN], number: u64) -> [u8; CHECKSUM_LEN as usize] {
    let mut hasher = Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(&page[..CONTENT_LEN]);
    hasher.finalize().to_le_bytes()
}

/// A page that was allocated and freed in one transaction is never written. SQLite does not take such a page for
/// a b-tree page, nor a row's checksum for content, so that accepting it hides nothing.
fn is_hole(page: &[u8; PAGE_LEN]) -> bool {
    page.iter().all(|byte| *byte == 0)
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    pass_on!(file, xClose)
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, len: sqlite3_int64) -> c_int {
    pass_on!(file, xTruncate, len)
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    pass_on!(file, xSync, flags)
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, len: *mut sqlite3_int64) -> c_int {
    pass_on!(file, xFileSize, len)
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    pass_on!(file, xLock, level)
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    pass_on!(file, xUnlock, level)
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, held: *mut c_int) -> c_int {
    pass_on!(file, xCheckReservedLock, held)
}

unsafe extern "C" fn file_control(file: *mut sqlite3_file, operation: c_int, argument: *mut c_void) -> c_int {
    pass_on!(file, xFileControl, operation, argument)
}

unsafe extern "C" fn sector_size(file: *mut sqlite3_file) -> c_int {
    pass_on!(file, xSectorSize)
}

unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    pass_on!(file, xDeviceCharacteristics)
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    region: c_int,
    len: c_int,
    extend: c_int,
    memory: *mut *mut c_void,
) -> c_int {
    pass_on!(file, xShmMap, region, len, extend, memory)
}

unsafe extern "C" fn shm_lock(file: *mut sqlite3_file, offset: c_int, count: c_int, flags: c_int) -> c_int {
    pass_on!(file, xShmLock, offset, count, flags)
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    // SAFETY: as in `pass_on`.
    unsafe {
        let file = system_file(file);
        if let Some(method) = (*(*file).pMethods).xShmBarrier {
            method(file);
        }
    }
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, delete: c_int) -> c_int {
    pass_on!(file, xShmUnmap, delete)
}

/// Version 2: without memory-mapped pages, which would bypass the verification.
static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// A WAL whose syncs can be made to fail.
#[cfg(test)]
pub(crate) mod faults {
    use std::cell::Cell;

    use rusqlite::ffi::SQLITE_IOERR_FSYNC;

    use super::*;

    thread_local! {
        /// Syncs of WALs by this thread fail, though everything is written.
        pub(crate) static SYNC_FAILS: Cell<bool> = const { Cell::new(false) };
    }

    unsafe extern "C" fn read(
        file: *mut sqlite3_file,
        buffer: *mut c_void,
        len: c_int,
        offset: sqlite3_int64,
    ) -> c_int {
        pass_on!(file, xRead, buffer, len, offset)
    }

    unsafe extern "C" fn write(
        file: *mut sqlite3_file,
        buffer: *const c_void,
        len: c_int,
        offset: sqlite3_int64,
    ) -> c_int {
        pass_on!(file, xWrite, buffer, len, offset)
    }

    unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
        if SYNC_FAILS.get() {
            return SQLITE_IOERR_FSYNC;
        }
        pass_on!(file, xSync, flags)
    }

    pub(super) static WAL_METHODS: sqlite3_io_methods =
        sqlite3_io_methods { xRead: Some(read), xWrite: Some(write), xSync: Some(sync), ..METHODS };
}
