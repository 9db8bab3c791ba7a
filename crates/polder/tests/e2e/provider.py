"""An OpenID provider that somebody else wrote (oidc-provider-mock, on Authlib), over HTTPS; and somebody who signs in there.

Arguments: certificate, key. Prints the issuer and the ID token of "ann" for client "polder", then serves until standard input ends.
"""

import json
import ssl
import sys
import threading
import urllib.parse
import urllib.request

import oidc_provider_mock
import werkzeug.serving

certificate, key = sys.argv[1:3]
user = oidc_provider_mock.User(sub="ann", claims={"groups": ["dev"]})
app = oidc_provider_mock.app(user_claims=[user])
server = werkzeug.serving.make_server("127.0.0.1", 0, app, threaded=True, ssl_context=(certificate, key))
threading.Thread(target=server.serve_forever, daemon=True).start()
issuer = f"https://127.0.0.1:{server.server_port}"


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments):
        return None


context = ssl.create_default_context(cafile=certificate)
opener = urllib.request.build_opener(Stay, urllib.request.HTTPSHandler(context=context))


def ask(url, form=None):
    body = urllib.parse.urlencode(form).encode() if form else None
    try:
        return opener.open(urllib.request.Request(url, body))
    except urllib.error.HTTPError as answer:
        return answer


back = "https://client.example/callback"
query = urllib.parse.urlencode(
    {"client_id": "polder", "redirect_uri": back, "response_type": "code", "scope": "openid"}
)
signed_in = ask(f"{issuer}/oauth2/authorize?{query}", {"sub": "ann"})
code = urllib.parse.parse_qs(urllib.parse.urlparse(signed_in.headers["Location"]).query)["code"][0]
form = {
    "grant_type": "authorization_code",
    "code": code,
    "redirect_uri": back,
    "client_id": "polder",
    "client_secret": "any",
}
tokens = json.load(ask(f"{issuer}/oauth2/token", form))
print(json.dumps({"issuer": issuer, "token": tokens["id_token"]}), flush=True)
sys.stdin.read()
