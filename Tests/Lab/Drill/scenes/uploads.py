"""Uploads as clients send them: in one request, interrupted and resumed, over HTTP/1.1 and HTTP/2."""

import re

from day import STORED, URL, Scene

SIZE = 20_000_000
MARKED = "-H 'Upload-Draft-Interop-Version: 10' -H 'Upload-Complete: ?1'"


def plain(day):
    result = day.put("report.pdf", 300_000)
    day.check_answered(result, 201, "the client receives the application's response", "report.pdf")
    anonymous = f"curl -sS -o /dev/null -w 'status %{{http_code}}\\n' -T /root/report.pdf {URL}anonymous.pdf"
    day.must_show(anonymous, "status 401", "without a login the upload is refused")


def resumable(day):
    seen = day.send("film.mp4", SIZE, "--cut 8000000").output
    has_url = re.search(r"(?m)^< 104 .*location: http://uploads\.example/files/", seen)
    day.check(has_url, "a 104 has the upload's public URL")
    day.check(seen.find("< 104") < seen.find("cut by the client") != -1, "before the connection is cut")
    day.must_show("spoolgate list", "film.mp4", "spoolgate list has it")
    day.check(day.deliveries("film.mp4") == [], "the application received nothing")
    result = day.resume("film.mp4")
    offset = re.search(r"(?m)^< 20\d .*upload-offset: (\d+)", result.output)
    day.check(offset and 0 < int(offset[1]) <= 8_000_000, "HEAD returns the offset")
    day.check_answered(result, 201, "the rest by PATCH, and the client receives the application's response")
    day.run(f"sha256sum {STORED}/film.mp4")
    day.check_delivered("film.mp4")
    result = day.resume("film.mp4")
    day.check_answered(result, 201, "a client that lost the response receives it again")
    day.check_delivered("film.mp4", "and the application received one request")


def over_http2(day):
    name = "album.zip"
    if "HTTP2" not in day.value("curl --version"):
        day.transcript.say("skipped: this curl has no HTTP/2")
        return
    day.make(name, SIZE)
    curl = "curl -sS --http2 --cacert /root/certificate.pem -u alice:secret"
    url = f"https://uploads.example/files/{name}"
    result = day.run(f"{curl} --max-time 1.5 --limit-rate 6M -D /root/head {MARKED} -T /root/{name} {url}")
    day.check(result.status == 28, "curl stops after a second and a half")
    head = day.run("cat /root/head").output
    location = re.search(r"(?im)^location: *(https://\S+)", head)
    if not day.check(re.search(r"(?m)^HTTP/2 104", head) and location, "the 104 arrived over HTTP/2"):
        del day.expected[name]
        return
    head = day.run(f"{curl} -I {location[1]}").output
    offset = re.search(r"(?im)^upload-offset: *(\d+)", head)
    if not day.check(offset and 0 < int(offset[1]) < SIZE, "HEAD returns the offset"):
        return
    result = day.run(
        f"tail -c +{int(offset[1]) + 1} /root/{name} | {curl} -w 'status %{{http_code}}\\n' -X PATCH "
        f"-H 'Upload-Draft-Interop-Version: 10' -H 'Upload-Offset: {offset[1]}' -H 'Upload-Complete: ?1' "
        f"-H 'Content-Type: application/partial-upload' -T - {location[1]}"
    )
    day.check_answered(result, 201, "the rest by PATCH, and the client receives the application's response", name)


SCENES = [
    Scene("An ordinary upload", plain),
    Scene("A large one, interrupted and resumed", resumable),
    Scene("The same over TLS and HTTP/2", over_http2),
]
