"""Which Go module each release of etcd is, for `winkle get etcd@VERSION`.

From 3.5 on the server is a module whose versions are the releases.  The releases of 3.4 predate
that: their module carries no major version in its path, so Go refuses their tags and knows them
only by the time and the commit of each.
"""

from harness.errors import UsageError
from harness.released import Releases

# Release: time and commit of its tag.
_COMMITS_3_4 = {
    "3.4.0": "20190830150955-898bd1351fcf",
    "3.4.1": "20190917205325-a14579fbfb1a",
    "3.4.2": "20191009222652-bbe86b066c0c",
    "3.4.3": "20191023171146-3cf2f69b5738",
    "3.4.4": "20200224211402-c65a9e2dd1fd",
    "3.4.5": "20200319002442-e784ba73c229",
    "3.4.6": "20200329194727-bdc9bc1d816e",
    "3.4.7": "20200401174654-e694b7bb0875",
    "3.4.8": "20200518184023-0de2b1f8607a",
    "3.4.9": "20200520232829-54ba9589114f",
    "3.4.10": "20200716221620-18dfb9cca345",
    "3.4.11": "20200818154809-e71e0c5c8813",
    "3.4.12": "20200819165624-17cef6e3e9d5",
    "3.4.13": "20200824191128-ae9734ed278b",
    "3.4.14": "20201125193152-8a03d2e9614b",
    "3.4.15": "20210226220824-aa7126864d82",
    "3.4.16": "20210512015243-d19fbe541bf9",
    "3.4.17": "20211004023027-19e2e70e4f50",
    "3.4.18": "20211015134708-72d3e382e73c",
    "3.4.19": "20220712081845-4636a5fab43f",
    "3.4.20": "20220805212701-1e2682301c29",
    "3.4.21": "20220915004622-85b640cee793",
    "3.4.22": "20221102000833-1f054980bc27",
    "3.4.23": "20221221061116-c8b78319672a",
    "3.4.24": "20230216013900-6d1bfe4f9927",
    "3.4.25": "20230414071934-94593e63d45c",
    "3.4.26": "20230512014047-a603c0798948",
    "3.4.27": "20230711085208-c92fb80f3944",
    "3.4.28": "20231123142931-adf6bd245b10",
    "3.4.29": "20240109131145-3ee15038fd11",
    "3.4.30": "20240131130919-ff2304879e1b",
    "3.4.31": "20240320135013-950cd5fbe6ca",
    "3.4.32": "20240425174734-9ac4e7ef0643",
    "3.4.33": "20240613141046-5cd1d285d744",
    "3.4.34": "20240911181550-c123b3ea3db3",
    "3.4.35": "20241112171243-f893034254cf",
    "3.4.36": "20250225191713-74b3bc969d0d",
    "3.4.37": "20250415194437-1a36b4853952",
    "3.4.38": "20251021182904-f1f5c1c2a4ed",
    "3.4.39": "20251112043835-af367e02b948",
    "3.4.40": "20251217191353-901d7949e2b0",
    "3.4.41": "20260213181134-43cbb1658847",
    "3.4.42": "20260320165304-89dc59aa1c7c",
    "3.4.43": "20260401181818-b477bc229f6d",
    "3.4.44": "20260501183011-59098950c8e4",
    "3.4.45": "20260601203031-6e72c68a3199",
}


def _module(version: str) -> str:
    line = tuple(int(number) for number in version.split(".")[:2])
    if line >= (3, 5) and line[0] == 3:
        return f"go.etcd.io/etcd/server/v3@v{version}"
    if version in _COMMITS_3_4:
        return f"go.etcd.io/etcd@v0.5.0-alpha.5.0.{_COMMITS_3_4[version]}"
    if line == (3, 4):
        raise UsageError(f"etcd {version} is no known release of 3.4: 3.4.0 to 3.4.45 are")
    raise UsageError(f"etcd {version} cannot be built: releases from 3.4.0 on can")


RELEASES = Releases("etcd", "etcd", "etcd Version: {version}", _module)
