//! Methods that a feature adds, for builds without the feature. They exist only so that the compiler names the feature, where it
//! would otherwise say that there is no such method.
//!
//! A bound that nothing fulfils is an error where the method is called, and not here, if it has a lifetime of its own.

#[cfg(any(not(feature = "redis"), not(feature = "_tls")))]
use super::builder::Builder;

/// Implemented by nothing.
#[cfg(not(feature = "redis"))]
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "this method needs the feature `redis` of the crate `distlock`",
    label = "needs the feature `redis`",
    note = "`redis` is on by default: without `default-features = false` it is there, or with `features = [\"redis\"]`"
)]
pub trait NeedsRedis {}

/// Implemented by nothing.
#[cfg(not(feature = "_tls"))]
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "this method needs a feature for TLS of the crate `distlock`, such as `tls-rustls`",
    label = "needs the feature `tls-rustls`",
    note = "in Cargo.toml: `features = [\"tls-rustls\"]`, or `tls-native-tls` for the system's library"
)]
pub trait NeedsTls {}

/// Implemented by nothing.
#[cfg(not(feature = "metrics"))]
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "this method needs the feature `metrics` of the crate `distlock`",
    label = "needs the feature `metrics`",
    note = "in Cargo.toml: `features = [\"metrics\"]`"
)]
pub trait NeedsMetrics {}

/// Implemented by nothing.
#[cfg(not(feature = "testing"))]
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "this method needs the feature `testing` of the crate `distlock`",
    label = "needs the feature `testing`",
    note = "in Cargo.toml, under `[dev-dependencies]`: `distlock` with `features = [\"testing\"]`"
)]
pub trait NeedsTesting {}

#[cfg(any(not(feature = "redis"), not(feature = "_tls")))]
macro_rules! setters {
    ($needs:ident: $($setter:ident($($value:ident),+)),+ $(,)?) => {
        impl Builder {$(
            #[doc(hidden)]
            pub fn $setter(self, $($value: impl Sized),+) -> Self
            where
                for<'a> &'a Self: $needs,
            {
                $(drop($value);)+
                self
            }
        )+}
    };
}

#[cfg(not(feature = "redis"))]
setters!(
    NeedsRedis:
    credentials(user, password),
    credentials_from(source),
    credentials_interval(interval),
    password_file(path),
    sentinel_password_file(path),
    look_up_interval(interval),
    ping_interval(interval),
    connect_timeout(timeout),
    replicas(replicas, timeout),
    replicas_on_disk(on_disk),
    restart_grace(grace),
    map_file(path),
    tls_ca_file(path),
    tls_client_files(certificate, key),
    tls_server_name(name),
    fencing_token_ttl(ttl),
    nodelay(nodelay),
    pub_sub(pub_sub),
    track_holds(track),
);

#[cfg(not(feature = "_tls"))]
setters!(
    NeedsTls:
    tls_ca_pem(pem),
    tls_ca_pem_from(source),
    tls_client_pem(certificates, key),
    tls_client_pem_from(source),
);

#[cfg(not(feature = "redis"))]
mod without_redis {
    use super::NeedsRedis;
    use crate::client::Client;
    use crate::client::builder::Builder;
    use crate::error::Error;

    impl Client {
        #[doc(hidden)]
        pub async fn connect(_url: &str) -> Result<Self, Error>
        where
            for<'a> &'a Self: NeedsRedis,
        {
            Err(Error::NoClient)
        }

        #[doc(hidden)]
        pub fn connect_lazy(_url: &str) -> Result<Self, Error>
        where
            for<'a> &'a Self: NeedsRedis,
        {
            Err(Error::NoClient)
        }
    }

    impl Builder {
        #[doc(hidden)]
        pub async fn connect(self, _url: &str) -> Result<Client, Error>
        where
            for<'a> &'a Self: NeedsRedis,
        {
            Err(Error::NoClient)
        }

        #[doc(hidden)]
        pub fn connect_lazy(self, _url: &str) -> Result<Client, Error>
        where
            for<'a> &'a Self: NeedsRedis,
        {
            Err(Error::NoClient)
        }

        #[doc(hidden)]
        pub fn map_address(self, _map: impl Fn(&str, u16) -> Option<(String, u16)>) -> Self
        where
            for<'a> &'a Self: NeedsRedis,
        {
            self
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod without_metrics {
    use super::NeedsMetrics;
    use crate::client::builder::Builder;

    impl Builder {
        #[doc(hidden)]
        pub fn metrics_key_class(self, _class: fn(&str) -> &'static str) -> Self
        where
            for<'a> &'a Self: NeedsMetrics,
        {
            self
        }
    }
}

#[cfg(not(feature = "testing"))]
mod without_testing {
    use super::NeedsTesting;
    use crate::backend::memory::MemoryServer;
    use crate::resource::owner::Holder;

    /// Methods of a server in this process, with what they return.
    macro_rules! methods {
        ($($method:ident($($value:ident: $type:ty),*) $(-> $returns:ty)?);+ $(;)?) => {
            impl MemoryServer {$(
                #[doc(hidden)]
                pub fn $method(&self $(, $value: $type)*) $(-> $returns)?
                where
                    for<'a> &'a Self: NeedsTesting,
                {
                    $(let _ = $value;)*
                    $(<$returns>::default())?
                }
            )+}
        };
    }

    methods!(
        take_down();
        bring_up();
        fail_next(commands: u32);
        lose_next(commands: u32);
        forget_all();
        forget(key: &str);
        locked_keys() -> Vec<String>;
        holders(key: &str) -> Vec<Holder>;
        waiters(key: &str) -> Vec<Holder>;
    );

    impl MemoryServer {
        #[doc(hidden)]
        pub async fn until_locked(&self, _key: &str)
        where
            for<'a> &'a Self: NeedsTesting,
        {
        }

        #[doc(hidden)]
        pub async fn until_free(&self, _key: &str)
        where
            for<'a> &'a Self: NeedsTesting,
        {
        }

        #[doc(hidden)]
        pub async fn until_waiting(&self, _key: &str, _waiters: usize)
        where
            for<'a> &'a Self: NeedsTesting,
        {
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_method_of_a_feature_has_a_stand_in_for_builds_without_it() {
        // What is behind a feature as a whole, and what follows such a line in the builder.
        const WHOLE: [&str; 7] = [
            include_str!("connect.rs"),
            include_str!("builder/address_map.rs"),
            include_str!("builder/connections.rs"),
            include_str!("builder/credentials.rs"),
            include_str!("builder/tls.rs"),
            include_str!("../backend/memory/testing/faults.rs"),
            include_str!("../backend/memory/testing/observe.rs"),
        ];
        const BUILDER: &str = include_str!("builder/mod.rs");
        let stand_ins = include_str!("no_feature.rs");
        let methods = |source: &'static str| {
            let lines = source
                .lines()
                .filter_map(|line| line.strip_prefix("    pub "));
            let lines = lines.map(|line| line.trim_start_matches("async ").strip_prefix("fn "));
            lines
                .flatten()
                .map(|line| line.split(['(', '<']).next().unwrap_or_default())
        };
        let gated = BUILDER.split("#[cfg_attr(docsrs").skip(1);
        let gated = gated.filter_map(|rest| methods(rest).next());
        let whole = WHOLE.into_iter().flat_map(methods);
        let names: Vec<_> = whole.chain(gated).collect();
        assert!(names.len() > 35, "{names:?}");
        for name in names {
            assert!(
                stand_ins.contains(&format!("{name}(")),
                "`{name}` is behind a feature and has no stand-in in no_feature.rs"
            );
        }
    }
}
