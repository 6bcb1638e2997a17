//! Which paths there are, and which methods each of them takes.

use ::http::Method;

/// Every path, as the document of the interface writes it, and its methods.
pub const ROUTES: [(&str, &str); 13] = [
    (Route::Limit.path(), Route::Limit.methods()),
    (Route::Check.path(), Route::Check.methods()),
    (Route::Batch.path(), Route::Batch.methods()),
    (Route::Refund.path(), Route::Refund.methods()),
    (Route::Release.path(), Route::Release.methods()),
    (Route::Renew.path(), Route::Renew.methods()),
    (Route::Auth.path(), Route::Auth.methods()),
    (Route::Json.path(), Route::Json.methods()),
    (Route::Health.path(), Route::Health.methods()),
    (Route::Ready.path(), Route::Ready.methods()),
    (Route::Healthcheck.path(), Route::Healthcheck.methods()),
    (Route::Metrics.path(), Route::Metrics.methods()),
    (Route::OpenApi.path(), Route::OpenApi.methods()),
];

/// What every path before a key begins with.
pub(super) const LIMIT_PREFIX: &str = "/limit/";

/// An endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Limit,
    Check,
    Batch,
    Refund,
    Release,
    Renew,
    Auth,
    Json,
    Health,
    Ready,
    Healthcheck,
    Metrics,
    OpenApi,
}

impl Route {
    /// The endpoint at a path.
    #[inline]
    pub(super) fn of(path: &str) -> Option<Self> {
        if path.starts_with(LIMIT_PREFIX) {
            return Some(Self::Limit);
        }
        Some(match path {
            "/v1/check" => Self::Check,
            "/v1/check/batch" => Self::Batch,
            "/v1/refund" => Self::Refund,
            "/v1/release" => Self::Release,
            "/v1/renew" => Self::Renew,
            "/v1/auth" => Self::Auth,
            "/json" => Self::Json,
            "/healthz" => Self::Health,
            "/readyz" => Self::Ready,
            "/healthcheck" => Self::Healthcheck,
            "/metrics" => Self::Metrics,
            "/openapi.json" => Self::OpenApi,
            _ => return None,
        })
    }

    /// Its path, as documents write it.
    const fn path(self) -> &'static str {
        match self {
            Self::Limit => "/limit/{key}",
            Self::Check => "/v1/check",
            Self::Batch => "/v1/check/batch",
            Self::Refund => "/v1/refund",
            Self::Release => "/v1/release",
            Self::Renew => "/v1/renew",
            Self::Auth => "/v1/auth",
            Self::Json => "/json",
            Self::Health => "/healthz",
            Self::Ready => "/readyz",
            Self::Healthcheck => "/healthcheck",
            Self::Metrics => "/metrics",
            Self::OpenApi => "/openapi.json",
        }
    }

    /// Its methods, as `Allow` writes them. Proxies ask `/v1/auth` with the method of their client, so
    /// there the list is only what they commonly use.
    pub(super) const fn methods(self) -> &'static str {
        match self {
            Self::Limit => "GET, HEAD, POST",
            Self::Check | Self::Batch | Self::Refund | Self::Release | Self::Renew | Self::Json => {
                "POST"
            }
            Self::Auth => "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE",
            Self::Health | Self::Ready | Self::Healthcheck | Self::Metrics | Self::OpenApi => {
                "GET, HEAD"
            }
        }
    }

    #[inline]
    pub(super) fn allows(self, method: &Method) -> bool {
        match self {
            Self::Auth => true,
            Self::Limit => matches!(*method, Method::GET | Method::HEAD | Method::POST),
            Self::Check | Self::Batch | Self::Refund | Self::Release | Self::Renew | Self::Json => {
                *method == Method::POST
            }
            Self::Health | Self::Ready | Self::Healthcheck | Self::Metrics | Self::OpenApi => {
                matches!(*method, Method::GET | Method::HEAD)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_found_at_its_path_and_takes_the_methods_that_it_says() {
        let all = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"];
        for (path, methods) in ROUTES {
            let route = Route::of(&path.replace("{key}", "ann")).expect(path);
            assert_eq!(route.path(), path);
            for method in all {
                let is_listed = methods.split(", ").any(|listed| listed == method);
                let method = Method::from_bytes(method.as_bytes()).unwrap();
                assert_eq!(route.allows(&method), is_listed, "{method} {path}");
            }
        }
        assert_eq!(Route::of("/"), None);
        assert_eq!(Route::of("/v1/check/"), None);
    }
}
