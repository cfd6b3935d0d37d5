//! The HTTP server of the daemon: `/metrics`, a landing page, and the two pages that supervisors
//! ask. It reads the latest snapshot and holds no lock while it writes.
//!
//! A connection serves one request and lives for [`CONNECTION_LIFETIME`] at most, so a client that
//! sends or reads slowly holds one of [`MAX_CONNECTIONS`] places for that long and no more. There
//! is no authentication and no TLS: listen on loopback, or put a proxy in front.

use std::{
    convert::Infallible, future::Future, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration,
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time,
};

use super::metrics;
use crate::model::Snapshot;

/// Connections served at once; more wait in the backlog.
pub const MAX_CONNECTIONS: usize = 32;

/// How long a connection may take, from accept to close.
pub const CONNECTION_LIFETIME: Duration = Duration::from_secs(10);

/// How long open connections may still take when the server is to stop.
const GRACE: Duration = Duration::from_secs(1);

/// Pause after a connection could not be accepted, as when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT_TYPE: &str = "text/plain; charset=utf-8";
const HTML_TYPE: &str = "text/html; charset=utf-8";

const LANDING: &str = concat!(
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>lazyfree</title></head>\n",
    "<body>\n<h1>lazyfree ",
    env!("CARGO_PKG_VERSION"),
    "</h1>\n<p>What Linux does with memory that programs give back lazily (MADV_FREE).</p>\n<ul>\n",
    "<li><a href=\"/metrics\">/metrics</a> for Prometheus</li>\n",
    "<li><a href=\"/-/healthy\">/-/healthy</a> answers while the process runs</li>\n",
    "<li><a href=\"/-/ready\">/-/ready</a> answers once there are numbers</li>\n",
    "</ul>\n</body>\n</html>\n",
);

/// The latest snapshot; `None` until there is one.
pub type Latest = watch::Receiver<Option<Arc<Snapshot>>>;

/// The address can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for /metrics: {error}; {}", next_step(error))]
pub struct BindError {
    /// What was to be listened on.
    pub address: SocketAddr,
    /// What the kernel said.
    pub error: io::Error,
}

fn next_step(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "stop what listens there (`ss -ltnp` names it), or choose another address with --listen"
        }
        io::ErrorKind::AddrNotAvailable => {
            "this host has no such address; choose one that `ip address` shows with --listen"
        }
        io::ErrorKind::PermissionDenied => {
            "a port below 1024 needs CAP_NET_BIND_SERVICE; choose a higher one with --listen"
        }
        _ => "choose another address with --listen",
    }
}

/// A server that listens and doesn't answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

/// Listens on an address; port 0 takes a free one.
///
/// # Errors
///
/// If the kernel refuses the address; the message says what to do about it.
pub async fn bind(address: SocketAddr) -> Result<Server, BindError> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Server { listener, address })
    };
    bound.await.map_err(|error| BindError { address, error })
}

impl Server {
    /// The address, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `shutdown` completes, then lets open connections finish for a moment.
    pub async fn serve(self, latest: Latest, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let next = async {
                // Nobody closes the semaphore.
                let place = Arc::clone(&places).acquire_owned().await.ok();
                (self.listener.accept().await, place)
            };
            let (accepted, place) = tokio::select! {
                () = &mut shutdown => break,
                Some(_) = connections.join_next() => continue,
                next = next => next,
            };
            match accepted {
                Ok((stream, _)) => {
                    let latest = latest.clone();
                    connections.spawn(async move {
                        // A client that is too slow is cut off; there is nobody to tell.
                        let _ = time::timeout(CONNECTION_LIFETIME, answer(stream, latest)).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection for /metrics");
                    time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.listener);
        // Dropping the set ends what is still open after the grace.
        let _ =
            time::timeout(GRACE, async { while connections.join_next().await.is_some() {} }).await;
    }
}

async fn answer(stream: TcpStream, latest: Latest) {
    let service = service_fn(|request: Request<Incoming>| {
        // The clone releases the channel's lock before anything is written.
        let snapshot = latest.borrow().clone();
        let response = respond(request.method(), request.uri().path(), snapshot.as_deref());
        async { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection for /metrics ended early");
    }
}

fn respond(method: &Method, path: &str, snapshot: Option<&Snapshot>) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        let mut response =
            text(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not allowed here\n"));
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match (path, snapshot) {
        ("/", _) => reply(StatusCode::OK, HTML_TYPE, LANDING),
        ("/-/healthy", _) => text(StatusCode::OK, "healthy\n"),
        ("/-/ready", Some(_)) => text(StatusCode::OK, "ready\n"),
        ("/metrics" | "/-/ready", None) => {
            text(StatusCode::SERVICE_UNAVAILABLE, "the first sample has not been taken yet\n")
        }
        ("/metrics", Some(snapshot)) => match metrics::encode(snapshot) {
            Ok(body) => reply(StatusCode::OK, METRICS_TYPE, body),
            Err(error) => text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("cannot encode the metrics: {error}\n"),
            ),
        },
        _ => text(StatusCode::NOT_FOUND, "no such page; / has a list\n"),
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    reply(status, TEXT_TYPE, body)
}

fn reply(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        sync::oneshot,
        task::JoinHandle,
    };

    use super::*;
    use crate::export::fixture;

    struct Running {
        address: SocketAddr,
        latest: watch::Sender<Option<Arc<Snapshot>>>,
        stop: oneshot::Sender<()>,
        server: JoinHandle<()>,
    }

    async fn run(snapshot: Option<Snapshot>) -> Running {
        let server = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = server.address();
        let (latest, receiver) = watch::channel(snapshot.map(Arc::new));
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(server.serve(receiver, async {
            let _ = stopped.await;
        }));
        Running { address, latest, stop, server }
    }

    /// Status line, headers in lower case, and body.
    async fn ask(address: SocketAddr, request: &str) -> (String, String, String) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let (status, headers) = head.split_once("\r\n").unwrap();
        (status.into(), headers.to_ascii_lowercase(), body.into())
    }

    async fn get(address: SocketAddr, path: &str) -> (String, String, String) {
        ask(address, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await
    }

    #[tokio::test]
    async fn metrics_are_those_of_the_latest_snapshot() {
        let running = run(Some(fixture::procfs())).await;
        let latest = fixture::full();
        running.latest.send_replace(Some(Arc::new(latest.clone())));
        let (status, headers, body) = get(running.address, "/metrics").await;
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert!(headers.contains("content-type: text/plain; version=0.0.4; charset=utf-8"));
        assert!(headers.contains("connection: close"), "{headers}");
        assert_eq!(body, metrics::encode(&latest).unwrap());
        assert_eq!(get(running.address, "/metrics?name[]=x").await.2, body);
    }

    #[tokio::test]
    async fn nothing_is_ready_before_the_first_sample() {
        let running = run(None).await;
        for path in ["/metrics", "/-/ready"] {
            let (status, _, body) = get(running.address, path).await;
            assert_eq!(status, "HTTP/1.1 503 Service Unavailable", "{path}");
            assert_eq!(body, "the first sample has not been taken yet\n");
        }
        assert_eq!(get(running.address, "/-/healthy").await.0, "HTTP/1.1 200 OK");
        running.latest.send_replace(Some(Arc::new(fixture::full())));
        assert_eq!(get(running.address, "/-/ready").await.0, "HTTP/1.1 200 OK");
    }

    #[tokio::test]
    async fn the_landing_page_links_to_pages_that_exist() {
        let running = run(Some(fixture::full())).await;
        let (status, headers, body) = get(running.address, "/").await;
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert!(headers.contains("content-type: text/html"));
        let links: Vec<_> =
            body.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(links.len(), 3);
        for link in links {
            assert_eq!(get(running.address, link).await.0, "HTTP/1.1 200 OK", "{link}");
        }
        assert_eq!(get(running.address, "/metrics/").await.0, "HTTP/1.1 404 Not Found");
    }

    #[tokio::test]
    async fn only_get_and_head_are_allowed() {
        let running = run(Some(fixture::full())).await;
        let post = "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
        let (status, headers, _) = ask(running.address, post).await;
        assert_eq!(status, "HTTP/1.1 405 Method Not Allowed");
        assert!(headers.contains("allow: get, head"));
        let head = "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        let (status, headers, body) = ask(running.address, head).await;
        assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", ""));
        let length = metrics::encode(&fixture::full()).unwrap().len();
        assert!(headers.contains(&format!("content-length: {length}")), "{headers}");
    }

    #[tokio::test]
    async fn what_is_not_http_gets_no_metrics_and_does_no_harm() {
        let running = run(Some(fixture::full())).await;
        let (status, _, body) = ask(running.address, "hello\r\n\r\n").await;
        assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 400 Bad Request", ""));
        assert_eq!(get(running.address, "/-/healthy").await.0, "HTTP/1.1 200 OK");
    }

    #[tokio::test]
    async fn silent_clients_are_bounded_and_cut_off() {
        let running = run(Some(fixture::full())).await;
        let mut silent = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            silent.push(TcpStream::connect(running.address).await.unwrap());
        }
        let mut waiting = TcpStream::connect(running.address).await.unwrap();
        waiting.write_all(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut byte = [0];
        // The paused clock moves only when every task is idle: nothing came for half the lifetime.
        time::pause();
        let early = time::timeout(CONNECTION_LIFETIME / 2, waiting.read(&mut byte)).await;
        assert!(early.is_err(), "one more than the bound is served");
        let mut answer = String::new();
        waiting.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        for stream in &mut silent {
            assert_eq!(stream.read(&mut byte).await.unwrap(), 0, "still open");
        }
    }

    #[tokio::test]
    async fn shutdown_frees_the_port_and_ends_idle_connections() {
        let running = run(Some(fixture::full())).await;
        let mut idle = TcpStream::connect(running.address).await.unwrap();
        assert_eq!(get(running.address, "/-/healthy").await.0, "HTTP/1.1 200 OK");
        running.stop.send(()).unwrap();
        running.server.await.unwrap();
        assert_eq!(idle.read(&mut [0]).await.unwrap_or(0), 0);
        assert!(TcpStream::connect(running.address).await.is_err());
    }

    #[tokio::test]
    async fn a_port_in_use_is_told_with_what_to_do() {
        let first = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let error = bind(first.address()).await.unwrap_err().to_string();
        assert!(error.contains(&first.address().to_string()), "{error}");
        assert!(error.contains("in use") && error.contains("--listen"), "{error}");
    }
}
