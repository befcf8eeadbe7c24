//! How a program that contains its C library looks up names.

/// Has the C library look up hosts and users in files and in the DNS only. Does nothing unless glibc is linked statically.
///
/// `/etc/nsswitch.conf` may name modules, such as `resolve` of systemd. glibc would load them from this machine, together with
/// the C library that they need, and a program that contains another version of it may crash then. Call this before threads are
/// started. Does not block. Source: `__nss_configure_lookup` in `nss.h` of glibc 2.
pub fn use_own_name_services() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    for (database, services) in [(c"hosts", c"files dns"), (c"passwd", c"files")] {
        // SAFETY: the declaration is that of `nss.h`. Both strings end with a zero byte, and glibc copies what it keeps. No
        // other thread is there that looks up a name.
        unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
    }
}

#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
unsafe extern "C" {
    fn __nss_configure_lookup(
        database: *const libc::c_char,
        services: *const libc::c_char,
    ) -> libc::c_int;
}
