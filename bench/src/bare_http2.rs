//! The least that a server of HTTP/2 costs that is built from hyper: one thread, bodies of zeros, no file.

use crate::failure::{Context, Result};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::runtime;

/// The largest body, in bytes.
const BODY_BYTES_MAX: usize = 1_000_000;

/// A server that ends when it is killed.
#[derive(Clone, Debug, clap::Args)]
pub struct BareHttp2 {
    /// The address to listen on.
    #[arg(long)]
    pub address: SocketAddr,
}

impl BareHttp2 {
    /// Runs in this process.
    ///
    /// # Errors
    /// The address is in use.
    pub fn run(&self) -> Result<()> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context(|| "runtime".into())?;
        runtime
            .block_on(self.serve())
            .context(|| format!("serve on {}", self.address))
    }

    async fn serve(&self) -> std::io::Result<()> {
        let listener = TcpListener::bind(self.address).await?;
        let zeros = Bytes::from(vec![0; BODY_BYTES_MAX]);
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            let zeros = zeros.clone();
            let answer = move |request: Request<_>| {
                let body = zeros.slice(..body_bytes(&request));
                async move { Ok::<_, Infallible>(Response::new(Full::new(body))) }
            };
            let connection = Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(socket), service_fn(answer));
            // A client that leaves is no failure.
            tokio::spawn(async { drop(connection.await) });
        }
    }
}

/// The number in `/hot/NUMBER.bin`.
fn body_bytes(request: &Request<hyper::body::Incoming>) -> usize {
    let name = request.uri().path().trim_start_matches("/hot/");
    let bytes = name.trim_end_matches(".bin").parse().unwrap_or(0);
    BODY_BYTES_MAX.min(bytes)
}
