//! Stands in for a name server: an HTTP proxy on loopback that leads every host name to one server.
//!
//! A plane's host name is `<plane>.localhost`, and Go's resolver asks the network for such names. Upstream's clients
//! honor `proxy-url` of a kubeconfig, so with this they reach a plane by its own host name, on any machine.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;

/// A request for a tunnel is a line and a few headers.
const HEAD_LEN_MAX: u64 = 16 * 1024;
const HEAD_PATIENCE: Duration = Duration::from_secs(10);

/// Starts it; it lives as long as this process. The URL is what a kubeconfig's `proxy-url` wants.
pub(crate) fn start(server: SocketAddr) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port on loopback")?;
    let url = format!("http://{}", listener.local_addr()?);
    thread::spawn(move || {
        for client in listener.incoming().filter_map(Result::ok) {
            thread::spawn(move || tunnel(client, server));
        }
    });
    Ok(url)
}

/// One connection, both ways until both sides have ended. Whatever goes wrong ends it, which is all the client can be told.
fn tunnel(client: TcpStream, server: SocketAddr) -> std::io::Result<()> {
    client.set_read_timeout(Some(HEAD_PATIENCE))?;
    let mut head = BufReader::new(client.try_clone()?.take(HEAD_LEN_MAX));
    let mut line = String::new();
    head.read_line(&mut line)?;
    let asked = line.starts_with("CONNECT ");
    while line.trim_end() != "" {
        line.clear();
        head.read_line(&mut line)?;
    }
    let mut answer = client.try_clone()?;
    if !asked {
        return answer.write_all(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n");
    }
    let server = TcpStream::connect(server)?;
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    client.set_read_timeout(None)?;
    answer.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
    let back = thread::spawn(move || {
        std::io::copy(&mut from_server, &mut to_client).ok();
        to_client.shutdown(Shutdown::Write).ok();
    });
    // A client waits for our answer before it goes on, so nothing of its own is left in the buffer.
    let (mut from_client, mut to_server) = (client, server);
    std::io::copy(&mut from_client, &mut to_server).ok();
    to_server.shutdown(Shutdown::Write).ok();
    back.join().ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(request: &[u8], rest: &[u8]) -> String {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = start(server.local_addr().unwrap()).unwrap();
        thread::spawn(move || {
            let (mut peer, _) = server.accept().unwrap();
            let mut sent = String::new();
            peer.read_to_string(&mut sent).unwrap();
            peer.write_all(format!("you said {sent}").as_bytes()).unwrap();
        });
        let mut client = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
        client.write_all(request).unwrap();
        if !rest.is_empty() {
            let mut opened = [0; 19];
            client.read_exact(&mut opened).unwrap();
            assert_eq!(opened, *b"HTTP/1.1 200 OK\r\n\r\n");
            client.write_all(rest).unwrap();
        }
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn any_name_leads_to_the_server() {
        assert_eq!(ask(b"CONNECT p1.localhost:6443 HTTP/1.1\r\nHost: x\r\n\r\n", b"hello"), "you said hello");
    }

    #[test]
    fn only_tunnels_are_given() {
        assert!(ask(b"GET http://p1.localhost/ HTTP/1.1\r\n\r\n", b"").starts_with("HTTP/1.1 405"));
    }
}
