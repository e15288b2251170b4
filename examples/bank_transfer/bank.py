"""Two banks, replicated: one that loses money, and one that does not."""

import viewstamp as vs


class UnknownAccount(vs.CommandError):
    """Nobody has this account. No money was moved."""


class OutOfFunds(vs.CommandError):
    """There is not so much in the account. No money was moved."""


class Bank(vs.ReplicatedActor):
    """Accounts, and what is in them."""

    def __init__(self) -> None:
        self.accounts: dict[str, int] = {}

    @vs.command
    def open(self, account: str, amount: int) -> None:
        """Open an account with some money in it; one that is open stays as it is."""
        self.accounts.setdefault(account, amount)

    @vs.command
    def transfer(self, source: str, target: str, amount: int) -> None:
        """Move money, or raise and move none."""
        for account in (source, target):
            if account not in self.accounts:
                raise UnknownAccount(account)
        self._take(source, amount)
        self._give(target, amount)

    @vs.query
    def total(self) -> int:
        """Return how much money there is."""
        return sum(self.accounts.values())

    def _take(self, account: str, amount: int) -> None:
        if account not in self.accounts:
            raise UnknownAccount(account)
        if self.accounts[account] < amount:
            raise OutOfFunds(f"{account} has {self.accounts[account]}")
        self.accounts[account] -= amount

    def _give(self, account: str, amount: int) -> None:
        if account not in self.accounts:
            raise UnknownAccount(account)
        self.accounts[account] += amount


class HastyBank(Bank):
    """A bank with a mistake: what a command has changed before it raises stays changed, and its caller gets an error.

    It takes the money, finds that there is nobody to give it to, and raises. There is no rollback: the money is gone,
    on every member alike.
    """

    @vs.command
    def transfer(self, source: str, target: str, amount: int) -> None:
        """Move money, or raise; and then some may be gone."""
        self._take(source, amount)
        self._give(target, amount)
